// SPDX-License-Identifier: MIT OR Apache-2.0
//! The tools for a stopped cache, on one that holds anything: `check`, `dump`, `repair`.
//!
//! The first two, and a repair that is not carried out, change nothing. What repair has written
//! `check` finds sound, and the engine opens.

use flashfront_serve::offline::{self, Older, Repair, RepairError};

use crate::Target;
use crate::bytes::Bytes;
use crate::cache::{BLOCK, Cache};
use crate::patch::Damaged;
use crate::scratch::Scratch;

pub(crate) const TARGET: Target = Target {
    name: "offline",
    summary: "check, dump and repair of a damaged or forged cache",
    input_bytes_max: 512,
    heap_bytes_max: 64 << 20,
    body,
};

thread_local! {
    static FILE: Scratch = Scratch::new();
}

fn body(data: &[u8]) {
    let mut bytes = Bytes::new(data);
    let older = bytes.pick(&[Older::Keep, Older::Drop]);
    let damaged = Damaged::new(Cache::single(), &mut bytes);
    let device = damaged.bytes();
    FILE.with(|file| {
        file.put(&device);
        attack(file, &damaged, &device, older);
    });
}

fn attack(file: &Scratch, damaged: &Damaged, device: &[u8], older: Older) {
    let path = file.path();
    let checked = offline::check(&path, &mut |_, _| {});
    let dumped = offline::dump(&path, &mut |_, _| {});
    assert!(dumped.is_err() || checked.is_ok(), "{checked:?}");
    let planned = Repair::plan(&path, None, false, &mut |_, _| {});
    assert!(file.bytes(device.len()) == device, "what only reads has written");
    let Ok(planned) = planned else { return };
    let needed = planned.report().needed;
    drop(planned);
    let checked = checked.expect("a repair begins with a check");
    assert!(needed || checked.ok, "{checked:?}");
    if !needed {
        return;
    }
    let plan = Repair::plan(&path, None, true, &mut |_, _| {}).expect("it could be planned before");
    let report = match plan.write(Some(older)) {
        Ok(report) => report,
        Err(RepairError::NoRoom { .. }) => {
            assert!(file.bytes(device.len()) == device, "it says that nothing was changed");
            return;
        }
        Err(error) => panic!("{error}"),
    };
    let checked = offline::check(&path, &mut |_, _| {}).expect("a repaired cache can be checked");
    assert!(checked.ok, "after a repair: {checked:#?}\n{report:#?}");
    assert_eq!(checked.blocks_cached, report.clean_kept + report.dirty_kept + kept(&report));
    open(file, damaged, device);
}

/// Blocks that are older than something lost, and are kept.
fn kept(report: &offline::RepairReport) -> u64 {
    if report.older_decision == Some(Older::Keep) { report.older_blocks } else { 0 }
}

/// The engine opens what was repaired.
fn open(file: &Scratch, damaged: &Damaged, device: &[u8]) {
    let bytes = file.bytes(device.len());
    let blocks: Vec<(usize, Vec<u8>)> =
        bytes.chunks(BLOCK).enumerate().map(|(nth, block)| (nth * BLOCK, block.to_vec())).collect();
    let mut world = damaged.cache.world(&blocks);
    if crate::replay::is_servable(&world, damaged.cache) {
        let opened = world.open();
        assert!(opened.is_ok(), "a repaired cache does not open: {opened:?}");
    }
}
