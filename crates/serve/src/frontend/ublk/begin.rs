// SPDX-License-Identifier: MIT OR Apache-2.0
//! The begin of a device's life with this daemon: found as another one left it, or made.

use std::io;
use std::time::{Duration, Instant};

use flashfront_engine::SECTOR_BYTES;

use super::super::Export;
use super::abi::{DeviceInfo, PARAMETERS_LEN, Parameters, feature, state};
use super::driver::Driver;
use super::{DELETE_WAIT, DEPTH, DISCARD_SECTORS_MAX, IO_BYTES_MAX, UblkError, UblkOptions};

/// How long a device may take to notice that its daemon has gone. It ends with the last I/O.
const DEATH_WAIT: Duration = Duration::from_secs(10);
const DEATH_STEP: Duration = Duration::from_millis(2);

/// Finds the device of that number if another daemon left it to us, and changes nothing of it. A
/// device that can't be used any more is deleted.
pub(super) fn find(driver: &mut Driver, options: &UblkOptions, can: u64) -> Result<Option<DeviceInfo>, UblkError> {
    let number = options.number;
    let failed = |doing| move |error: io::Error| UblkError::Io { number, doing, error };
    let end = Instant::now() + DEATH_WAIT;
    loop {
        let Some(info) = driver.info().map_err(failed("look at"))? else {
            return Ok(None);
        };
        if info.mark != options.mark {
            return Err(UblkError::Taken { number });
        }
        let usable = info.features & can & feature::USER_COPY != 0 && info.depth <= DEPTH;
        match info.state {
            state::DEAD if Instant::now() < end => driver.delete(DELETE_WAIT).map_err(failed("delete"))?,
            state::QUIESCED if !usable => return Err(UblkError::Taken { number }),
            state::QUIESCED if !options.recoverable => return Err(UblkError::Durability { number }),
            state::QUIESCED => return Ok(Some(info)),
            // The daemon before is not quite gone.
            _ if Instant::now() < end => {}
            _ => return Err(UblkError::InUse { number }),
        }
        std::thread::sleep(DEATH_STEP);
    }
}

/// Takes over the device that another daemon has left.
///
/// All places of its queue must be fetched next: the driver takes no second order of this kind
/// before that.
pub(super) fn take_over(driver: &mut Driver) -> io::Result<()> {
    let end = Instant::now() + DEATH_WAIT;
    loop {
        match driver.start_recovery() {
            // The daemon before is not quite gone.
            Err(error) if error.raw_os_error() == Some(libc::EBUSY) && Instant::now() < end => {}
            other => return other,
        }
        std::thread::sleep(DEATH_STEP);
    }
}

/// Makes a new device.
pub(super) fn make(driver: &mut Driver, export: &Export, options: &UblkOptions) -> io::Result<DeviceInfo> {
    let recovery = feature::USER_RECOVERY | feature::USER_RECOVERY_REISSUE;
    let mut info = DeviceInfo {
        queues: 1,
        depth: DEPTH,
        io_bytes_max: IO_BYTES_MAX,
        device: options.number,
        features: feature::COMMANDS_ARE_IOCTLS | feature::USER_COPY | if options.recoverable { recovery } else { 0 },
        mark: options.mark,
        ..DeviceInfo::default()
    };
    driver.add(&mut info)?;
    let parameters = parameters(export);
    driver.set_parameters(&parameters).inspect_err(|_| {
        // The parameters have the fault, and not this call.
        let _ = driver.delete(DELETE_WAIT);
    })?;
    Ok(info)
}

fn parameters(export: &Export) -> Parameters {
    Parameters {
        len: PARAMETERS_LEN,
        types: 0b11,
        // A volatile cache that FLUSH empties, and FUA; perhaps read-only.
        attributes: 0b1100 | u32::from(export.read_only),
        logical_shift: export.block_bytes.trailing_zeros() as u8,
        physical_shift: 12,
        io_opt_shift: 12,
        io_min_shift: 12,
        io_sectors_max: IO_BYTES_MAX / SECTOR_BYTES as u32,
        sectors: export.size_bytes / SECTOR_BYTES,
        discard_granularity: 4096,
        discard_sectors_max: DISCARD_SECTORS_MAX,
        zero_sectors_max: DISCARD_SECTORS_MAX,
        discard_segments_max: 1,
        ..Parameters::default()
    }
}
