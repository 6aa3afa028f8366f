// SPDX-License-Identifier: MIT OR Apache-2.0
//! A small trace of each format, by hand, and what is in it.

use crate::trace::{Op, Record};
use Op::{Discard, Flush, Read, Write};

/// A trace and what is in it.
pub(super) struct Fixture {
    pub(super) format: &'static str,
    pub(super) bytes: Vec<u8>,
    pub(super) records: Vec<Record>,
    /// By kind, and bad ones, by what is said of them.
    pub(super) skipped: Vec<(&'static str, u64)>,
    pub(super) bad: Vec<&'static str>,
}

type Short = (Option<u64>, Op, u32, u64, u32);

fn fixture(
    format: &'static str,
    bytes: impl Into<Vec<u8>>,
    records: &[Short],
    skipped: &[(&'static str, u64)],
    bad: &[&'static str],
) -> Fixture {
    let record = |&(time_ns, op, device, sector, sectors): &Short| Record { time_ns, op, device, sector, sectors };
    Fixture {
        format,
        bytes: bytes.into(),
        records: records.iter().map(record).collect(),
        skipped: skipped.into(),
        bad: bad.into(),
    }
}

const SDB: u32 = 8 << 20 | 16;
const BLANK: (&str, u64) = ("blank lines", 1);
const HEADER: (&str, u64) = ("header lines", 1);
const EMPTY: (&str, u64) = ("requests of no length", 1);

/// Twenty lines that are all right, so that one in ten may be bad.
fn padded(text: &str, line: &str) -> String {
    format!("{text}\n{}", format!("{line}\n").repeat(20))
}

fn with<const N: usize>(first: [Short; N], padding: Short) -> Vec<Short> {
    first.into_iter().chain([padding; 20]).collect()
}

pub(super) fn all() -> Vec<Fixture> {
    let mut all =
        vec![blkreplay(), msr(), spc(), systor(), alibaba(), tencent(), fiu(), blkparse(), biosnoop(), blocks()];
    all.extend([fio2(), fio3(), vscsi1(), vscsi2(), blktrace(false), blktrace(true)]);
    all.extend(disksim());
    all.extend(arc());
    all.extend(oracle_general());
    all
}

fn blkreplay() -> Fixture {
    let text = "Copyright by nobody\n\n'things' remain\n########\nstart ; sector; length ; op ;  replay_delay=0 ; replay_duration=0\n\
        0.000000001 ;    481999264 ;   16 ; R ; 0.0 ; 0.0\n  2.5 ; 8 ; 1 ;RA ; 0.0 ; 0.0\n3.0 ; 9 ; 1 ; WFS ; 0.0 ; 0.0\n\
        3.0 ; 9 ; 1 ; X ; 0.0 ; 0.0\n3.0 ; 9\n3.0 ; 9 ; 0 ; W\nCopyright\nagain\nstart ; sector";
    let records = with(
        [
            (Some(1), Read, 0, 481_999_264, 16),
            (Some(2_500_000_000), Read, 0, 8, 1),
            (Some(3_000_000_000), Write, 0, 9, 1),
        ],
        (Some(4_000_000_000), Discard, 0, 1, 1),
    );
    let bad = ["line 9: unknown operation: `3.0 ; 9 ; 1 ; X ; 0.0 ; 0.0`", "line 10: no length: `3.0 ; 9`"];
    fixture("blkreplay", padded(text, "4.0;1;1;D;0;0"), &records, &[("header lines", 7), BLANK, EMPTY], &bad)
}

fn msr() -> Fixture {
    let text = "Timestamp,Hostname,DiskNumber,Type,Offset,Size,ResponseTime\r\n\
        128166372003061629,usr,0,Read,7014609920,24576,41286\r\n128166372003061630,usr,1,Write,511,2,41286\r\n\
        128166372003061630,usr,0,Trim,511,2,41286\r\n128166372003061631,usr,0,Read,1x,512\r\n128166372003061631,usr,0,Read,0,0,0\r\n";
    let records = with(
        [
            (Some(12_816_637_200_306_162_900), Read, 0, 13_700_410, 48),
            (Some(12_816_637_200_306_163_000), Write, 1, 0, 2),
        ],
        (Some(700), Write, 2, 1, 8),
    );
    let bad = [
        "line 4: unknown operation: `128166372003061630,usr,0,Trim,511,2,41286`",
        "line 5: the offset is no number: `128166372003061631,usr,0,Read,1x,512`",
    ];
    fixture("msr", padded(text, "7,src,0,write,512,4096"), &records, &[HEADER, EMPTY, BLANK], &bad)
}

fn spc() -> Fixture {
    let text = "0,20941264,8192,W,0.551706,x,y\n1,7,513,r,0.554041\n1,7,513,q,0.554041\n4294967296,7,1,r,1";
    let records = with(
        [(Some(551_706_000), Write, 0, 20_941_264, 16), (Some(554_041_000), Read, 1, 7, 2)],
        (Some(1_000_000_000), Read, 3, 0, 1),
    );
    let bad = ["line 3: unknown operation: `1,7,513,q,0.554041`", "line 4: the ASU is too large: `4294967296,7,1,r,1`"];
    fixture("spc", padded(text, "3,0,512,r,1"), &records, &[], &bad[..])
}

fn systor() -> Fixture {
    let text = "Timestamp,Response,IOType,LUN,Offset,Size\n1455592557.608126000,0.000226000,W,0,126703644672,4096\n\
        1455592557.610000001,,R,1,8192,512\n1455592557.611,0.0003,X,1,8192,512\n1455592557.611,0.0003,R,1,8192";
    let records = with(
        [
            (Some(1_455_592_557_608_126_000), Write, 0, 247_468_056, 8),
            (Some(1_455_592_557_610_000_001), Read, 1, 16, 1),
        ],
        (Some(1_455_592_558_000_000_000), Read, 2, 1, 2),
    );
    let bad = [
        "line 4: unknown operation: `1455592557.611,0.0003,X,1,8192,512`",
        "line 5: no size: `1455592557.611,0.0003,R,1,8192`",
    ];
    fixture("systor", padded(text, "1455592558,0.0001,R,2,512,1024"), &records, &[HEADER], &bad)
}

fn biosnoop() -> Fixture {
    let text = "TIME(s)     COMM           PID     DISK      T SECTOR     BYTES  LAT(ms)\n\
        0.000004    supervise      1950    xvda1     W 13092560   4096      0.74\n\
        0.000178    Web Content #2 1953    xvda1     RA 8          512       0.61\n\
        0.000500    jbd2/vda-8     211     xvdb      WFS 16         1024   0.05      0.61\n\
        0.000600    ?              0       xvdb      FF 0          0         0.61\n\
        0.000700    dd             7       xvdb      W 16         x         0.61\n\
        0.000700    dd             7";
    let records = with(
        [
            (Some(4_000), Write, 0, 13_092_560, 8),
            (Some(178_000), Read, 0, 8, 1),
            (Some(500_000), Write, 1, 16, 2),
            (Some(600_000), Flush, 1, 0, 0),
        ],
        (Some(1_000_000_000), Discard, 2, 1, 1),
    );
    let bad = [
        "line 6: the bytes is no number: `0.000700    dd             7       xvdb      W 16         x         0.61`",
        "line 7: no operation: `0.000700    dd             7`",
    ];
    fixture("biosnoop", padded(text, "1.0 fstrim 9 sda D 1 512 0.5"), &records, &[HEADER], &bad)
}

fn alibaba() -> Fixture {
    let text = "device_id,opcode,offset,length,timestamp\n419,W,126703644672,4096,1577808000000046\n\
        419,R,8192,512,1577808000000047\n419,R,8192,99999999999,1577808000000047\n419,R,8192,512,1,1";
    let records = with(
        [
            (Some(1_577_808_000_000_046_000), Write, 419, 247_468_056, 8),
            (Some(1_577_808_000_000_047_000), Read, 419, 16, 1),
        ],
        (Some(5000), Read, 1, 0, 1),
    );
    let bad = [
        "line 4: the length is too large: `419,R,8192,99999999999,1577808000000047`",
        "line 5: more fields than the format has: `419,R,8192,512,1,1`",
    ];
    fixture("alibaba", padded(text, "1,R,0,512,5"), &records, &[HEADER], &bad)
}

fn tencent() -> Fixture {
    let text = "1538323200,12910952,128,0,1063\n1538323200,6338688,8,1,1627\n1538323200,6338688,8,2,1627\n1538323200,1";
    let records = with(
        [
            (Some(1_538_323_200_000_000_000), Read, 1063, 12_910_952, 128),
            (Some(1_538_323_200_000_000_000), Write, 1627, 6_338_688, 8),
        ],
        (Some(2_000_000_000), Write, 5, 3, 4),
    );
    let bad = ["line 3: unknown operation: `1538323200,6338688,8,2,1627`", "line 4: no size: `1538323200,1`"];
    fixture("tencent", padded(text, "2,3,4,1,5"), &records, &[], &bad)
}

fn fiu() -> Fixture {
    let text = "89966795000000 4253 nfsd 508362000 8 W 8 16 0a782c5296634\n89966795000001 1 Web Content 16 8 R 8 16 0a782c\n\
        8 1 x 16 8 R 8 16 md5\n8 1 16 8 R 8 16 0a782c";
    let records = with(
        [(Some(89_966_795_000_000), Write, SDB, 508_362_000, 8), (Some(89_966_795_000_001), Read, SDB, 16, 8)],
        (Some(9), Write, SDB, 0, 8),
    );
    let bad = ["line 3: unknown MD5: `8 1 x 16 8 R 8 16 md5`"];
    // Without a process the pid takes its place, which nobody needs.
    let records: Vec<_> =
        records[..2].iter().copied().chain([(Some(8), Read, SDB, 16, 8)]).chain(records[2..].iter().copied()).collect();
    fixture("fiu", padded(text, "9 2 init 0 8 W 8 16 ff"), &records, &[], &bad)
}

fn blkparse() -> Fixture {
    let text = "Input file sdb.blktrace.0 added\n\
        \x20 8,16   5        1     0.000000000 18615  A   R 1444645666 + 256 <- (8,17) 1444645632\n\
        \x20 8,16   5        2     0.000001850 18615  Q  RA 1444645666 + 256 [java]\n\
        \x20 8,16   5        3     0.000006438 18615  Q FWS [jbd2/sdb 1]\n\
        \x20 8,16   5        4     0.000008750 18615  Q FWFSM 40 + 8 [jbd2]\n\
        \x20 8,16   5        5     0.000009980 18615  Q  DS 48 + 4194304 [fstrim]\n\
        \x20 8,16   5        6     0.000009981 18615  Q   N [x]\n\
        \x20 8,16   5        7     0.000009982 18615  Q   R 36 (12 00 00 00 24 00) [scsi_id]\n\
        \x20 8,16   5        8     0.000009982 18615  Q   R 36 [scsi_id]\n\
        \x20 8,16   5        8     0.000009983     0  C  WS 40 + 8 [0]\n\
        \x20 8,16   5        9     0.000009984     0  Q  WS 40 +\n\
        \x20 8,16   5        9     0.000009984     0  Y  WS 40 + 8\n\
        \x20 8,16   2        0     0.000012990     0  m   N cfq idle=0\n";
    let line = "  8,16   1        9     1.000000000     7  Q   W 8 + 8 [dd]";
    let summary = "CPU5 (8,16):\n Reads Queued:           1,      128KiB\t Writes Queued:  2\n\nTotal (8,16):\n PC Reads:    1\nEvents (8,16): 9 entries";
    let mut text = padded(text, line);
    text.push_str(summary);
    let records = with(
        [
            (Some(1850), Read, SDB, 1_444_645_666, 256),
            (Some(6438), Flush, SDB, 0, 0),
            (Some(8750), Write, SDB, 40, 8),
            (Some(9980), Discard, SDB, 48, 4_194_304),
        ],
        (Some(1_000_000_000), Write, SDB, 8, 8),
    );
    let skipped = [
        ("blkparse's summary", 6),
        ("events A (remapped)", 1),
        ("events without data", 1),
        ("commands past the block layer", 2),
        ("events C (completed)", 1),
        ("messages and process names", 1),
        ("blank lines", 2),
    ];
    let bad = [
        "line 11: no length: `8,16   5        9     0.000009984     0  Q  WS 40 +`",
        "line 12: unknown event: `8,16   5        9     0.000009984     0  Y  WS 40 + 8`",
    ];
    fixture("blkparse", text, &records, &skipped, &bad)
}

fn blocks() -> Fixture {
    let records = with([(None, Read, 0, 80_000, 8), (None, Read, 0, 8, 8)], (None, Read, 0, 16, 8));
    let bad = ["line 3: the block is no number: `x`", "line 6: the place is too large: `1152921504606846976`"];
    let text = "10000\r\n1\r\nx\n*\n\n1152921504606846976\n# by hand";
    fixture("blocks", padded(text, "2"), &records, &[("separators", 1), BLANK, ("comments", 1)], &bad)
}

fn fio2() -> Fixture {
    let text = "fio version 2 iolog\n/dev/sdb add\n/dev/sdb open\n/dev/sdb read 503808 4096\n/dev/sdb wait 5 0\nb write 1 512\n\
        b trim 0 4096\n/dev/sdb datasync 0 0\n/dev/sdb jump 0 0\n\n/dev/sdb close\n/dev/sdb wait 2 0\nb write 512 512";
    let records = [
        (None, Read, 0, 984, 8),
        (Some(5000), Write, 1, 0, 2),
        (Some(5000), Discard, 1, 0, 8),
        (Some(5000), Flush, 0, 0, 0),
        (Some(7000), Write, 1, 1, 1),
    ];
    let skipped = [HEADER, ("files added, opened, closed", 3), ("waits", 2), BLANK];
    fixture("fio2", text, &records, &skipped, &["line 9: unknown action: `/dev/sdb jump 0 0`"])
}

fn fio3() -> Fixture {
    let text = "fio version 3 iolog\n30 f add\n164 f open\n169 f read 503808 4096\n5231 f write 4096 512\n5232 f write 4096\n9 f sync\n";
    let records = [(Some(169_000), Read, 0, 984, 8), (Some(5_231_000), Write, 0, 8, 1), (Some(9000), Flush, 0, 0, 0)];
    let skipped = [HEADER, ("files added, opened, closed", 2)];
    fixture("fio3", text, &records, &skipped, &["line 6: no length: `5232 f write 4096`"])
}

/// Fields of 2, 4 and 8 bytes.
fn packed(fields: &[(usize, u64)]) -> Vec<u8> {
    fields.iter().flat_map(|(bytes, value)| value.to_le_bytes()[..*bytes].to_vec()).collect()
}

fn vscsi1() -> Fixture {
    let one = |length, command, version, sector, time| {
        packed(&[(4, 7), (4, length), (4, 1), (2, command), (2, version), (8, sector), (8, time)])
    };
    let mut bytes = one(32768, 0x2a, 0x100, 42_932_745, 5_632_000_001);
    bytes.extend(one(513, 0x88, 0x1ff, 0, 5_632_000_002));
    bytes.extend(one(0, 0x35, 0x100, 9, 5_632_000_003));
    bytes.extend(one(512, 0x12, 0x100, 0, 5_632_000_003));
    bytes.extend(one(0, 0x28, 0x100, 0, 5_632_000_003));
    let records = [
        (Some(5_632_000_001_000), Write, 0, 42_932_745, 64),
        (Some(5_632_000_002_000), Read, 0, 0, 2),
        (Some(5_632_000_003_000), Flush, 0, 0, 0),
    ];
    let skipped = [("commands other than read, write and flush", 1), EMPTY];
    fixture("vscsi1", bytes, &records, &skipped, &[])
}

fn vscsi2() -> Fixture {
    let two = |command, version, length, sector, time| {
        packed(&[(2, command), (2, version), (4, 7), (4, length), (4, 1), (8, sector), (8, time), (8, 99)])
    };
    let mut bytes = two(0x28, 0x200, 4096, 8, 10);
    bytes.extend(two(0x8a, 0x200, 512, 1 << 33, 11));
    bytes.extend(&two(0x8a, 0x200, 512, 1 << 33, 11)[..39]);
    let records = [(Some(10_000), Read, 0, 8, 8), (Some(11_000), Write, 0, 1 << 33, 1)];
    let bad = ["byte 80: the trace ends in the middle of a record, 39 bytes after its beginning"];
    fixture("vscsi2", bytes, &records, &[], &bad)
}

fn blktrace(big: bool) -> Fixture {
    let event = |time: u64, sector: u64, length: u64, categories: u64, number: u64, payload: u64| {
        let fields = [
            (4, 0x6561_7407),
            (4, 1),
            (8, time),
            (8, sector),
            (4, length),
            (4, categories << 16 | number),
            (4, 77),
            (4, SDB.into()),
            (4, 0),
            (2, 0),
            (2, payload),
        ];
        let order = |&(bytes, value): &(usize, u64)| {
            let mut field = value.to_le_bytes()[..bytes].to_vec();
            if big {
                field.reverse();
            }
            field
        };
        let mut event: Vec<u8> = fields.iter().flat_map(order).collect();
        event.extend(vec![0x5a; payload as usize]);
        event
    };
    // Categories: read 1, write 2, flush 4, sync 8, queue 16, completed 128, passed through 512,
    // notice 1024, discard 0x2000.
    let mut bytes = event(0, 0, 0, 1024, 0, 16);
    bytes.extend(event(10, 40, 4096, 1 | 8 | 16, 1, 0));
    bytes.extend(event(11, 40, 4096, 1 | 128, 8, 0));
    bytes.extend(event(12, 48, 8192, 2 | 4 | 16, 0x101, 8));
    bytes.extend(event(13, 1 << 37, 1 << 30, 2 | 0x2000 | 16, 1, 0));
    bytes.extend(event(14, 0, 0, 2 | 4 | 8 | 16, 1, 0));
    bytes.extend(event(15, 0, 36, 1 | 512 | 16, 1, 0));
    bytes.extend(event(15, 0, 0, 1 | 16, 1, 0));
    bytes.extend([0x65, 0x61, 0x74, 0x08, 0x65]);
    bytes.extend(event(16, 0, 512, 2 | 16, 99, 0));
    bytes.extend(event(17, 7, 512, 2 | 16, 1, 0));
    bytes.extend(&event(18, 7, 512, 2 | 16, 1, 100)[..147]);
    let records = [
        (Some(10), Read, SDB, 40, 8),
        (Some(12), Write, SDB, 48, 16),
        (Some(13), Discard, SDB, 1 << 37, 1 << 21),
        (Some(14), Flush, SDB, 0, 0),
        (Some(17), Write, SDB, 7, 1),
    ];
    let skipped = [
        ("messages and process names", 1),
        ("events C (completed)", 1),
        ("commands past the block layer", 1),
        ("events without data", 1),
    ];
    let bad = [
        "byte 408: no record begins in these 5 bytes",
        "byte 413: unknown event",
        "byte 509: the trace ends in the middle of a record, 147 bytes after its beginning",
    ];
    fixture("blktrace", bytes, &records, &skipped, &bad)
}

fn disksim() -> Vec<Fixture> {
    let text = "7961.833 0 20228336 8 0\n8346.206 1 6397360 496 1\n8346.206 0 1 8 0 9\n8346.206 0 9 a 1\n9.0 0 1 0 0\n\
        8347.5 0 40 8 1a\n8347.5 0 40 8 0x8000000b\n";
    let records = with(
        [
            (Some(7_961_833_000), Write, 0, 20_228_336, 8),
            (Some(8_346_206_000), Read, 1, 6_397_360, 496),
            (Some(8_347_500_000), Write, 0, 40, 8),
            (Some(8_347_500_000), Read, 0, 40, 8),
        ],
        (Some(9_000_000_000), Read, 0, 1, 2),
    );
    let bad = [
        "line 3: more fields than the format has: `8346.206 0 1 8 0 9`",
        "line 4: the length is no number: `8346.206 0 9 a 1`",
    ];
    let disksim = fixture("disksim", padded(text, "9000.0 0 1 2 3"), &records, &[EMPTY, BLANK], &bad);
    let text = "0 0 280605840 2 1\n97900000 0 287641400 128 0\n";
    let records = [(Some(0), Read, 0, 280_605_840, 2), (Some(97_900_000), Write, 0, 287_641_400, 128)];
    let ssdsim = fixture("ssdsim", text, &records, &[], &[]);
    let text = "0.000 0 11562803200 4096 1\n223.412 0 3159347200 1536 0\n";
    let records = [(Some(0), Read, 0, 22_583_600, 8), (Some(223_412_000), Write, 0, 6_170_600, 3)];
    let bytes = fixture("disksim-bytes", text, &records, &[], &[]);
    let text = "26.214000\t0\t303574\t1\t0\n78.643000\t0\t55596\t2\t1\n";
    let records = [(Some(26_214_000), Write, 0, 303_574, 8), (Some(78_643_000), Read, 0, 55_596, 16)];
    let pages = fixture("disksim-4k", text, &records, &[], &[]);
    vec![disksim, ssdsim, bytes, pages]
}

fn arc() -> [Fixture; 2] {
    let records = with([(None, Read, 0, 3_050_771, 25)], (None, Read, 0, 7, 8));
    let bad = ["line 2: no count: `5`", "line 3: the third field is no number: `5 1 x 4`"];
    let sectors = fixture("arc", padded("3050771 25 0 0\n5\n5 1 x 4", "7 8 0 1"), &records, &[], &bad);
    let records = [(None, Read, 0, 8, 8), (None, Read, 0, 800, 8)];
    [sectors, fixture("arc-4k", "1 1 0 0\n100 1 0 1\n", &records, &[], &[])]
}

fn oracle_general() -> [Fixture; 2] {
    let one = |time, object, size, next: i64| packed(&[(4, time), (8, object), (4, size), (8, next as u64)]);
    let mut bytes = one(0, 42_932_745, 32768, 2);
    bytes.extend(one(3, (1 << 63) + 5, 512, -1));
    bytes.extend(one(3, 42_932_745, 32768, i64::MAX));
    let blocks = [(Some(0), Read, 0, 343_461_960, 8), (Some(3_000_000_000), Read, 0, 40, 8)];
    let again = (Some(3_000_000_000), Read, 0, 343_461_960, 8);
    let lba = [(Some(0), Read, 0, 42_932_745, 64), (Some(3_000_000_000), Read, 0, 42_932_745, 64)];
    let bad = ["byte 24: the place is too large"];
    let blocks = fixture("oracle-general", bytes.clone(), &[blocks[0], blocks[1], again], &[], &[]);
    [blocks, fixture("oracle-general-lba", bytes, &lba, &[], &bad)]
}
