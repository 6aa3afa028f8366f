// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests of compressed traces: whole, cut, and damaged.

use super::*;

pub(super) fn gz(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

fn xz(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = lzma_rust2::XzWriter::new(Vec::new(), lzma_rust2::XzOptions::with_preset(1)).unwrap();
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

fn zstd(bytes: &[u8]) -> Vec<u8> {
    ruzstd::encoding::compress_to_vec(bytes, ruzstd::encoding::CompressionLevel::Fastest)
}

type Packer = fn(&[u8]) -> Vec<u8>;

const PACKERS: [(&str, Packer); 3] = [("gz", gz), ("xz", xz), ("zstd", zstd)];

pub(super) fn numbers(from: u64, to: u64) -> Vec<u8> {
    (from..to).flat_map(|it| format!("{it}\n").into_bytes()).collect()
}

#[test]
fn compressed_members_are_read_as_one() {
    for (name, pack) in PACKERS {
        // A line may be cut between two.
        let mut packed = pack(&[&numbers(0, 50_000)[..], b"50"].concat());
        packed.extend(pack(b"000\n"));
        packed.extend(pack(b""));
        packed.extend(pack(&numbers(50_001, 60_000)));
        let (records, report, format) = read(&packed, &Options::default()).unwrap();
        assert!(records.iter().map(|it| it.sector / 8).eq(0..60_000), "{name}");
        assert_eq!((report.bad, format), (0, "blocks"), "{name}");
    }
    // What copies in whole blocks have behind and between members; other things there are damage.
    let (first, then) = (gz(b"7\n8"), gz(b"9\n"));
    let padded = [&first[..], &[0; 700_000], &then, &[0; 511]].concat();
    let (records, report, _) = read(&padded, &Options::default()).unwrap();
    assert_eq!((records.iter().map(|it| it.sector / 8).collect::<Vec<_>>(), report.bad), (vec![7, 89], 0));
    for (name, pack) in PACKERS {
        let (records, report, _) = read(&[&pack(b"7\n")[..], b"8\n"].concat(), &Options::default()).unwrap();
        assert_eq!((records.len(), report.bad, report.damage.is_some()), (1, 1, true), "{name}");
    }
    // A frame that a reader has to skip.
    let mut packed = vec![0x53, 0x2a, 0x4d, 0x18, 3, 0, 0, 0, 1, 2, 3];
    packed.extend(zstd(b"7\n"));
    assert_eq!(read(&packed, &Options::default()).unwrap().0.len(), 1);
}

#[test]
fn a_cut_file_is_bad_where_it_ends() {
    for (name, pack) in PACKERS {
        let all = numbers(0, 500_000);
        let packed = pack(&all);
        let (records, report, _) = read(&packed[..packed.len() * 9 / 10], &Options::default()).unwrap();
        assert!(
            records.len() < 500_000 && records.iter().map(|it| it.sector / 8).eq(0..records.len() as u64),
            "{name}"
        );
        assert!(matches!(report.first_bad[..], [Bad { reason: Reason::Damaged(_), .. }]), "{name}: {report:?}");
        let strict = Options { strict: true, ..Options::default() };
        let mut reader = Reader::new(Cursor::new(packed[..packed.len() * 9 / 10].to_vec()), &strict).unwrap();
        assert!(matches!(reader.find_map(Result::err), Some(ReadError::Bad(_))), "{name}");
        // Nothing but the beginning, and a wrong byte in the middle.
        let error = Reader::new(Cursor::new(packed[..packed.len().min(7)].to_vec()), &Options::default()).unwrap_err();
        assert!(matches!(error, OpenError::Damaged(_)), "{name}: {error}");
        let mut rotten = packed;
        let end = rotten.len();
        rotten[end / 2..end / 2 + 64].fill(0xff);
        let (records, report, _) = read(&rotten, &Options::default()).unwrap();
        assert!(report.bad > 0 || records.len() != 500_000, "{name}: rot went unnoticed");
    }
}

/// A decoder holds back as much as the window, 128 KiB a block, and a checksum. It must, until it
/// knows how the frame goes on.
#[test]
fn what_a_cut_frame_of_zstd_has_unpacked_is_read() {
    let block = |last: u32, bytes: &[u8]| [&(last | (bytes.len() as u32) << 3).to_le_bytes()[..3], bytes].concat();
    let all = numbers(0, 50_000);
    let blocks: Vec<Vec<u8>> = all.chunks(100_000).map(|it| block(0, it)).collect();
    // A window of 8 MiB, and a checksum.
    let begun = [&[0x28, 0xb5, 0x2f, 0xfd, 4, 13 << 3][..], &blocks.concat()].concat();
    let last = block(1, b"50000\n");
    for (end, lines) in
        [(&b""[..], 50_000), (&last[..5], 50_000), (&last, 50_001), (&[&last[..], &[9; 3]].concat(), 50_001)]
    {
        let (records, report, _) = read(&[&begun[..], end].concat(), &Options::default()).unwrap();
        assert!(records.iter().map(|it| it.sector / 8).eq(0..lines), "{} of {lines}", records.len());
        assert!(report.damage.is_some() && report.bad == 1, "{report:?}");
    }
}

#[test]
fn of_a_small_file_that_is_cut_what_is_there_is_read() {
    for (name, pack) in PACKERS {
        let packed = pack(&numbers(0, 60_000));
        let (records, report, _) = read(&packed[..packed.len() * 4 / 10], &Options::default()).unwrap();
        assert!((6_000..30_000).contains(&records.len()), "{name}: {}", records.len());
        assert!(report.damage.is_some() && report.bad == 1, "{name}");
        // Nor is anything lost to what stands behind it.
        let (records, report, _) = read(&[&packed[..], b"garbage\n"].concat(), &Options::default()).unwrap();
        assert_eq!((records.len(), report.bad, report.damage.is_some()), (60_000, 1, true), "{name}");
    }
}

/// gzip goes on after a wrong byte, and its checksum comes last: what follows are thousands of bad
/// lines.
#[test]
fn damage_is_told_however_many_bad_lines_came_before() {
    let lines: Vec<u8> = (0..20_000_u64).flat_map(|it| format!("{}\n", it * it % 10_007).into_bytes()).collect();
    let mut packed = gz(&lines);
    let at = packed.len() / 10;
    let found = (0..200).map(|nth| {
        packed[at + nth] ^= 0x10;
        let found = read(&packed, &by_format("blocks"));
        packed[at + nth] ^= 0x10;
        found.unwrap().1
    });
    let mut buried = found.filter(|report| report.bad > 100);
    let report = buried.next().expect("some byte leaves the stream readable");
    assert!(matches!(report.damage, Some(Bad { reason: Reason::Damaged(_), .. })), "{report:?}");
}

/// The first line is not there in full: no format shows, but that is not what is wrong.
#[test]
fn what_ends_in_its_first_line_is_damaged_and_not_unknown() {
    let packed = gz(b"1,h,0,Read,0,4096,1");
    let error = Reader::new(Cursor::new(packed[..packed.len() - 4].to_vec()), &Options::default()).unwrap_err();
    assert!(matches!(error, OpenError::Damaged(_)), "{error}");
    let slow = Slow { bytes: Cursor::new(b"1,h,0".to_vec()), most: 4096, fails: true };
    let error = Reader::new(slow, &Options::default()).unwrap_err();
    assert_eq!(error.to_string(), "can't read the trace: the disk is gone");
}
