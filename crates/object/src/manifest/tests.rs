// SPDX-License-Identifier: MIT OR Apache-2.0
use super::*;

#[test]
fn a_manifest_is_read_as_it_was_written_and_torn_ones_are_seen() {
    let mut one = Manifest::first([1; 16], [2; 16], 4096, 1_700_000_000, "a host");
    let stamp = Stamp { epoch: 2, sequence: 17 };
    one.is_open = true;
    let (root_at, root_bytes, root_crc) = (40, 60, 9);
    one.checkpoint = Some(CheckpointRef { stamp, bytes: 100, root_at, root_bytes, root_crc, since: 3, born: 2 });
    one.tail.push(TailEntry { stamp, head: 80, bytes: 8_000_000, born: 4 });
    let later = Stamp { epoch: 3, sequence: 16 };
    one.tail.push(TailEntry { stamp: later, head: 0, bytes: u64::MAX, born: 3 });
    one.snapshots.push(Snapshot { name: "before the upgrade".to_owned(), manifest: 3, wish: 1 });
    one.form = Form { compressed: true, key: Some(77) };
    (one.single_writer, one.owes) = (true, true);
    one.holder = Some(Holder { machine: [3; 16], cache: [4; 16] });
    let bytes = one.encode();
    assert_eq!(Manifest::decode(&bytes), Ok(one));
    for at in 0..bytes.len() {
        let is_torn = |bytes: &[u8]| matches!(Manifest::decode(bytes), Err(ManifestFault::Torn(_)));
        assert!(is_torn(&bytes[..at]), "cut at {at}");
        let mut harmed = bytes.clone();
        harmed[at] ^= 1;
        assert!(is_torn(&harmed), "byte {at}");
    }
}

#[test]
fn a_whole_manifest_with_something_unknown_is_not_taken_for_a_torn_one() {
    let bytes = Manifest::first([1; 16], [2; 16], 4096, 1_700_000_000, "a host").encode();
    let changed = |at: usize, to: u8| {
        let mut put = Put(bytes.clone());
        put.0[at] = to;
        put.0[CRC_AT..CRC_AT + 4].fill(0);
        Manifest::decode(&put.seal(CRC_AT))
    };
    assert!(changed(FLAGS_AT, 0).is_ok(), "no flag is set");
    let foreign = |what: &str| Err(ManifestFault::Foreign(what.to_owned()));
    assert_eq!(changed(FLAGS_AT, 0x88), foreign("flags 0x80"));
    assert_eq!(changed(7, b'3'), foreign("format version 03"));
    assert_eq!(changed(7, b'1'), foreign("format version 01"));
    let mut longer = Put(bytes.clone());
    longer.u64(7);
    let len = longer.0.len() as u32;
    longer.0[LENGTH_AT..LENGTH_AT + 4].copy_from_slice(&len.to_le_bytes());
    longer.0[CRC_AT..CRC_AT + 4].fill(0);
    assert_eq!(Manifest::decode(&longer.seal(CRC_AT)), foreign("other fields"));
}

/// As programs wrote it before numbers were short.
#[test]
fn an_older_tail_is_read() {
    let mut one = Manifest::first([1; 16], [2; 16], 4096, 1_700_000_000, "a host");
    let mut put = Put(one.encode());
    // The lists of the tail and of the snapshots are at the end.
    let lists = put.0.split_off(put.0.len() - 8);
    assert_eq!(lists, [0; 8]);
    put.0[FLAGS_AT..FLAGS_AT + 4].fill(0);
    put.count(2);
    for sequence in [5, 7] {
        let entry = TailEntry { stamp: Stamp { epoch: 3, sequence }, head: 80, bytes: 70_000, born: sequence + 1 };
        one.tail.push(entry);
        put.u32(3).u64(sequence).u32(80).u64(70_000).u64(sequence + 1);
    }
    put.count(0);
    let len = put.0.len() as u32;
    put.0[LENGTH_AT..LENGTH_AT + 4].copy_from_slice(&len.to_le_bytes());
    put.0[CRC_AT..CRC_AT + 4].fill(0);
    assert_eq!(Manifest::decode(&put.seal(CRC_AT)), Ok(one));
}
