// SPDX-License-Identifier: MIT OR Apache-2.0
//! `advise DEVICE --for 1h`: the device is recorded first, and advised on then.
//!
//! The recording is kept: an answer that is asked for again, or differently, needs no second hour.

use std::env;
use std::fs;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::SystemTime;

use flashfront_record::{Order, device};
use flashfront_serve::config::Age;

use crate::usage::misused;
use crate::{human, record};

/// A recording ends before its file is larger: a hundred million requests.
const FILE_BYTES_MAX: u64 = 1 << 30;

/// Whether the target is to be recorded: a block device, and then it is said for how long.
pub(super) fn is_wanted(target: &Path, time: Option<Age>) -> anyhow::Result<bool> {
    let is_device = fs::metadata(target).is_ok_and(|found| found.file_type().is_block_device());
    let path = human::quoted(target);
    match (is_device, time) {
        (true, None) => misused!("{path}: a block device, and no trace; --for 1h records its requests first"),
        (false, Some(_)) => {
            misused!("{path}: no block device, so --for has nothing to record; leave --for out for a trace")
        }
        (true, Some(_)) => Ok(true),
        (false, None) => Ok(false),
    }
}

/// Records the device into a new file, which is named.
pub(super) fn recorded(target: &Path, time: Age, out: Option<&Path>, stop: &AtomicBool) -> anyhow::Result<PathBuf> {
    let name = target.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let usual = || env::temp_dir().join(record::name_of(&name, SystemTime::now()));
    let out = out.map_or_else(usual, Path::to_owned);
    let order = Order { out, limit: Some(time.0), bytes_max: FILE_BYTES_MAX, processes: false };
    let summary = record::watched(&name, &order, |watch| device(target, &order, watch))?;
    // A signal has ended the recording, and no more than that.
    stop.store(false, Ordering::Relaxed);
    tracing::info!("{} requests are recorded in {}", human::count(summary.requests), human::quoted(&summary.file));
    Ok(summary.file)
}
