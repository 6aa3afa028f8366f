// SPDX-License-Identifier: MIT OR Apache-2.0
//! The table of volumes: what is written is read again, and which table counts.

use alloc::format;
use alloc::vec;
use alloc::vec::Vec;

use super::*;
use crate::fact::types::BLOCK_BYTES;
use crate::format::{NAME_BYTES_MAX, PATH_BYTES_MAX, Shares, Table, VOLUMES_MAX};

/// A cache device in RAM, as far as tables and superblocks reach.
struct Device(Vec<u8>);

impl Device {
    fn put_table(&mut self, superblock: &Superblock) {
        let (offset, bytes) = superblock.encode_table().unwrap();
        self.0[offset as usize..][..bytes.len()].copy_from_slice(&bytes);
    }

    fn put(&mut self, superblock: &Superblock) {
        self.put_table(superblock);
        self.0[..BLOCK_LEN].copy_from_slice(&superblock.encode());
    }

    fn read(&self) -> Result<Superblock, SuperblockError> {
        Superblock::of_image(&self.0)
    }
}

/// A cache with so many volumes, every third id missing.
fn tabled(volumes: usize) -> Superblock {
    let blocks = Table::blocks_for(VOLUMES_MAX);
    let origins: Vec<_> = (0..volumes as u32).map(|nth| volume(nth * 3)).collect();
    let next_id = volumes as u32 * 3;
    let table = Some(Table { first_block: 1, blocks, number: 3, next_id });
    Superblock { first_block: 1 + 2 * blocks, cache_bytes: 2000 * BLOCK_BYTES, table, origins, ..superblock() }
}

fn volume(id: u32) -> OriginRecord {
    OriginRecord {
        id: OriginId(id),
        mode: Mode::ALL[id as usize % 4],
        read_only: id % 2 == 1,
        size_bytes: u64::from(id) << 9,
        name: format!("{id:0width$}", width = NAME_BYTES_MAX),
        identity: format!("serial {id}"),
        fingerprint: 7,
        changed_ns: 8,
        dirty_blocks: u64::from(id),
        origin_path: "p".repeat(PATH_BYTES_MAX),
        shares: Shares {
            min_bytes: 1,
            max_bytes: 2,
            dirty_limit_bytes: 3,
            dirty_age_ms: 4,
            weight: 5,
            bypass_bytes: Some(0),
            read_around_bytes: Some(6),
        },
    }
}

fn device(superblock: &Superblock) -> Device {
    let mut device = Device(vec![0; superblock.cache_bytes as usize]);
    device.put(superblock);
    device
}

#[test]
fn what_is_written_of_volumes_is_read_again() {
    for volumes in [0, 1, 7, 8, VOLUMES_MAX] {
        let superblock = tabled(volumes);
        assert_eq!(device(&superblock).read().as_ref(), Ok(&superblock), "{volumes} volumes");
    }
    assert_eq!(tabled(0).volumes_max(), VOLUMES_MAX);
}

#[test]
fn a_path_that_is_too_long_is_not_cut() {
    let mut superblock = tabled(1);
    superblock.origins[0].origin_path = "p".repeat(PATH_BYTES_MAX + 1);
    assert_eq!(device(&superblock).read().unwrap().origins[0].origin_path, "");
}

/// A power cut while the next update is written: at each moment the device has the old volumes, or
/// the new ones.
#[test]
fn a_power_cut_leaves_the_old_volumes_or_the_new_ones() {
    let old = tabled(20);
    let mut new = old.clone();
    new.origins.remove(3);
    new.begin_table();
    new.update += 1;
    let mut device = device(&old);
    let (offset, bytes) = new.encode_table().unwrap();
    for (nth, block) in bytes.chunks(BLOCK_LEN).enumerate() {
        device.0[offset as usize + nth * BLOCK_LEN..][..BLOCK_LEN].copy_from_slice(block);
        assert_eq!(device.read().unwrap(), old, "after block {nth}");
    }
    device.0[..BLOCK_LEN].copy_from_slice(&new.encode());
    assert_eq!(device.read().unwrap(), new);
}

/// The second of two members lags behind. The tables come before all superblocks. So after two
/// power cuts it has a superblock that names table 3, and the tables 4 and 5.
#[test]
fn a_member_that_lags_behind_takes_the_next_table() {
    let third = tabled(20);
    let mut fourth = third.clone();
    fourth.origins.remove(3);
    fourth.begin_table();
    let mut fifth = fourth.clone();
    fifth.origins.remove(3);
    fifth.begin_table();
    let mut device = device(&third);
    device.put_table(&fourth);
    device.put_table(&fifth);
    let found = device.read().unwrap();
    assert_eq!((&found.origins, found.table.unwrap().number), (&fourth.origins, 4));
}

#[test]
fn any_changed_byte_of_a_table_is_seen() {
    let superblock = tabled(9);
    let whole = device(&superblock);
    let (offset, bytes) = superblock.encode_table().unwrap();
    for at in (0..bytes.len()).step_by(97) {
        let mut bad = Device(whole.0.clone());
        bad.0[offset as usize + at] ^= 1;
        assert_eq!(bad.read(), Err(SuperblockError::Table { offset }), "byte {at}");
    }
}

#[test]
fn ids_that_come_twice_or_were_never_given_are_damage() {
    let superblock = tabled(4);
    let mut twice = superblock.clone();
    twice.origins[2].id = twice.origins[1].id;
    let mut beyond = superblock.clone();
    beyond.origins[3].id = OriginId(12);
    for bad in [twice, beyond] {
        assert!(matches!(device(&bad).read(), Err(SuperblockError::Table { .. })));
    }
}

#[test]
fn a_table_beside_its_place_is_refused() {
    let superblock = tabled(1);
    let table = superblock.table.unwrap();
    for (first_block, blocks) in [(0, table.blocks), (2, table.blocks), (1, 0), (1, table.blocks + 1), (1, u32::MAX)] {
        let table = Some(Table { first_block, blocks, ..table });
        let bad = Superblock { table, ..superblock.clone() };
        assert_eq!(Superblock::decode(&bad.encode()), Err(SuperblockError::Nonsense("table")), "{table:?}");
    }
}

#[test]
fn keys_of_all_ids_are_told_apart_and_those_of_version_1_look_as_they_did() {
    for id in [0, 1, 0xfff, 0x1000, 0x1001, 0xff_ffff] {
        for block in [0, 1, (1 << 36) - 1] {
            let key = Key { origin: OriginId(id), block: Block(block) };
            assert_eq!(split_key(pack_key(key)), key);
            assert!(id > 0xfff || pack_key(key) == u64::from(id) << 48 | block);
        }
    }
}
