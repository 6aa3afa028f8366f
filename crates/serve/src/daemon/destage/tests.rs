// SPDX-License-Identifier: MIT OR Apache-2.0
//! Destage of caches that a real daemon has filled: whole, interrupted, refused, and with lost
//! blocks.

use std::fs::File;
use std::os::unix::fs::FileExt;

use flashfront_engine::BLOCK_BYTES;

use super::*;
use crate::daemon::OriginsError;
use crate::offline::{Damage, DamageKind, check, detach};
use crate::rig::{Bench, freezing};

fn run(bench: &Bench) -> DestageReport {
    destage(&bench.config(), &Hooks::default(), &mut |_, _| {}).unwrap()
}

fn origin_holds(bench: &Bench, first: u64, blocks: u64) {
    let origin = File::open(bench.origin()).unwrap();
    let mut bytes = vec![0; BLOCK_BYTES as usize];
    for block in first..first + blocks {
        origin.read_exact_at(&mut bytes, block * BLOCK_BYTES).unwrap();
        assert!(bytes.iter().all(|byte| *byte == block as u8 ^ 0x5a), "block {block}");
    }
}

#[test]
fn everything_reaches_the_origin_after_a_crash_too() {
    for crash in [false, true] {
        let bench = Bench::formatted();
        let mut served = bench.serve_frozen();
        served.write(100, 700);
        if crash {
            served.stop_at_once()
        } else {
            served.stop()
        }
        let mut seen = Vec::new();
        let report = destage(&bench.config(), &Hooks::default(), &mut |done, all| seen.push((done, all))).unwrap();
        assert!(report.complete && !report.interrupted && report.lost.is_empty(), "{report:?}");
        assert_eq!((report.blocks_written, report.blocks_left), (700, 0));
        assert_eq!(seen.last(), Some(&(700, 700)));
        assert!(seen.is_sorted());
        origin_holds(&bench, 100, 700);
        let checked = check(&bench.cache(), &mut |_, _| {}).unwrap();
        assert!(checked.ok && checked.clean_stop && checked.blocks_dirty == 0, "{checked:?}");
        assert_eq!(run(&bench), DestageReport { complete: true, ..DestageReport::default() }, "nothing is left");
        detach(&bench.cache(), None, &bench.origin(), None, false, &mut |_, _| {}).unwrap();
    }
}

#[test]
fn an_interrupt_leaves_the_rest_dirty_and_is_gone_on_with() {
    let bench = Bench::formatted();
    let mut served = bench.serve_frozen();
    served.write(0, 1000);
    served.stop();
    let hooks = Hooks::default();
    let stop = hooks.stop.clone();
    let mut stops = 0;
    let mut interrupt = |_, _| {
        if stops == 0 {
            stop.stop();
        }
        stops += 1;
    };
    let report = destage(&bench.config(), &hooks, &mut interrupt).unwrap();
    assert!(report.interrupted && report.blocks_written > 0, "{report:?}");
    assert_eq!(report.blocks_written + report.blocks_left, 1000);
    let checked = check(&bench.cache(), &mut |_, _| {}).unwrap();
    assert!(checked.ok && checked.clean_stop, "{checked:?}");
    assert_eq!(checked.blocks_dirty, report.blocks_left);
    let rest = run(&bench);
    assert!(rest.complete);
    assert_eq!(rest.blocks_written, report.blocks_left);
    origin_holds(&bench, 0, 1000);
}

#[test]
fn an_origin_that_refuses_writes_ends_it() {
    let bench = Bench::formatted();
    let mut served = bench.serve_frozen();
    served.write(0, 10);
    served.stop();
    let hooks = Hooks { wrap_origin: Some(freezing(&Arc::new(true.into()))), ..Hooks::default() };
    let report = destage(&bench.config(), &hooks, &mut |_, _| {}).unwrap();
    assert!(!report.complete && !report.interrupted && report.origin_error.is_some(), "{report:?}");
    assert_eq!((report.blocks_written, report.blocks_left), (0, 10));
    assert!(run(&bench).complete);
    origin_holds(&bench, 0, 10);
}

#[test]
fn lost_blocks_are_listed_and_everything_else_is_written() {
    let bench = Bench::formatted();
    let mut served = bench.serve_frozen();
    served.write(0, 40);
    served.stop();
    let cache = std::fs::read(bench.cache()).unwrap();
    let at = cache.chunks(BLOCK_BYTES as usize).position(|block| block.iter().all(|byte| *byte == 7 ^ 0x5a));
    let offset = at.unwrap() as u64 * BLOCK_BYTES;
    File::options().write(true).open(bench.cache()).unwrap().write_all_at(&[1], offset + 9).unwrap();
    let report = run(&bench);
    assert!(!report.complete && report.origin_error.is_none(), "{report:?}");
    assert_eq!((report.blocks_written, report.blocks_left, report.lost_blocks), (39, 1, 1));
    assert_eq!(report.lost, [LostRange { origin: "data".to_owned(), lba: 7 * 8, blocks: 1 }]);
    origin_holds(&bench, 0, 7);
    origin_holds(&bench, 8, 32);
    let damage = check(&bench.cache(), &mut |_, _| {}).unwrap().damage;
    assert!(matches!(&damage[..], [Damage { kind: DamageKind::DirtyData, lba: Some(56), .. }]), "{damage:?}");
}

#[test]
fn it_is_refused_what_serve_is_refused() {
    let bench = Bench::formatted();
    let mut served = bench.serve_frozen();
    served.write(0, 10);
    assert!(destage(&bench.config(), &Hooks::default(), &mut |_, _| {}).unwrap_err().to_string().contains("busy"));
    served.stop();
    File::options().write(true).open(bench.origin()).unwrap().write_all_at(&[1], 0).unwrap();
    let refusal = destage(&bench.config(), &Hooks::default(), &mut |_, _| {}).unwrap_err();
    assert!(matches!(refusal, ServeError::Origins(OriginsError::OriginChanged { dirty: 10, .. })), "{refusal}");
}
