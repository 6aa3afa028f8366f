// SPDX-License-Identifier: MIT OR Apache-2.0
//! Orders to the ublk driver about a device as a whole: make it, start it, take it over, take it
//! away.
//!
//! They are commands of an io_uring of its own. Some orders the driver carries out only while the
//! device is being served ([`Driver::begin`]). They end later, and make the ring readable.
#![expect(unsafe_code, reason = "submission entries that point to memory")]

use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::time::{Duration, Instant};

use io_uring::types::{Fd, SubmitArgs, Timespec};
use io_uring::{IoUring, cqueue, opcode, squeue};

use super::abi::{ControlCommand, DeviceInfo, PARAMETERS_LEN, Parameters, control};

const ENTRIES: u32 = 4;
/// The order is for no queue.
const NO_QUEUE: u16 = u16::MAX;

/// The driver, as far as it is about one device.
pub(super) struct Driver {
    ring: IoUring<squeue::Entry128, cqueue::Entry>,
    file: File,
    device: u32,
    /// The number of the last order. One before it may end after it: a deletion that was not waited
    /// for.
    last: u64,
}

impl std::fmt::Debug for Driver {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Driver").field("device", &self.device).finish_non_exhaustive()
    }
}

impl Driver {
    /// About device `device`; `file` is /dev/ublk-control.
    pub(super) fn new(file: File, device: u32) -> io::Result<Self> {
        let ring = IoUring::builder().build(ENTRIES)?;
        Ok(Self { ring, file, device, last: 0 })
    }

    /// Becomes readable when what was begun has ended.
    pub(super) fn ring_fd(&self) -> RawFd {
        self.ring.as_raw_fd()
    }

    /// Returns the features of the driver.
    pub(super) fn features(&mut self) -> io::Result<u64> {
        let mut features = 0_u64;
        let (addr, len) = (&raw mut features as u64, size_of::<u64>() as u16);
        self.order(control::GET_FEATURES, ControlCommand { addr, len, ..ControlCommand::default() })?;
        Ok(features)
    }

    /// The device, if there is one of this number.
    pub(super) fn info(&mut self) -> io::Result<Option<DeviceInfo>> {
        let mut info = DeviceInfo::default();
        match self.with_info(control::GET_DEVICE_INFO, &mut info) {
            Err(error) if error.raw_os_error() == Some(libc::ENODEV) => Ok(None),
            other => other.map(|()| Some(info)),
        }
    }

    /// Makes the device; what it is like after that is written back.
    pub(super) fn add(&mut self, info: &mut DeviceInfo) -> io::Result<()> {
        self.with_info(control::ADD_DEVICE, info)
    }

    pub(super) fn set_parameters(&mut self, parameters: &Parameters) -> io::Result<()> {
        let (addr, len) = (std::ptr::from_ref(parameters) as u64, PARAMETERS_LEN as u16);
        self.order(control::SET_PARAMETERS, ControlCommand { addr, len, ..ControlCommand::default() })
    }

    /// Says that this process takes over the device of a dead one.
    pub(super) fn start_recovery(&mut self) -> io::Result<()> {
        self.order(control::START_RECOVERY, ControlCommand::default())
    }

    /// Takes the device away. If a program still has it open after `patience`, the kernel does so
    /// later.
    pub(super) fn delete(&mut self, patience: Duration) -> io::Result<()> {
        self.push(control::DELETE_DEVICE, ControlCommand::default());
        let end = Instant::now() + patience;
        loop {
            let left = Timespec::from(end.saturating_duration_since(Instant::now()));
            match self.ring.submitter().submit_with_args(1, &SubmitArgs::new().timespec(&left)) {
                Err(error) if error.raw_os_error() == Some(libc::ETIME) => return Ok(()),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
                Ok(_) => {
                    if let Some(result) = self.ended() {
                        return result;
                    }
                }
            }
        }
    }

    /// Begins an order that ends only when the process `pid` serves the device.
    pub(super) fn begin(&mut self, order: u32, pid: u64) -> io::Result<()> {
        self.push(order, ControlCommand { data: pid, ..ControlCommand::default() });
        self.ring.submit().map(drop)
    }

    /// How what was ordered last has ended, once it has.
    pub(super) fn ended(&mut self) -> Option<io::Result<()>> {
        let last = self.last;
        let result = self.ring.completion().find(|it| it.user_data() == last)?.result();
        Some(if result < 0 { Err(io::Error::from_raw_os_error(-result)) } else { Ok(()) })
    }

    fn with_info(&mut self, order: u32, info: &mut DeviceInfo) -> io::Result<()> {
        let (addr, len) = (std::ptr::from_mut(info) as u64, size_of::<DeviceInfo>() as u16);
        self.order(order, ControlCommand { addr, len, ..ControlCommand::default() })
    }

    /// Waits for the end.
    fn order(&mut self, order: u32, command: ControlCommand) -> io::Result<()> {
        self.push(order, command);
        loop {
            match self.ring.submit_and_wait(1) {
                // The memory that the command points to must outlive it.
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
                Ok(_) => {}
            }
            if let Some(result) = self.ended() {
                return result;
            }
        }
    }

    fn push(&mut self, order: u32, command: ControlCommand) {
        let command = ControlCommand { device: self.device, queue: NO_QUEUE, ..command };
        self.last += 1;
        let entry = opcode::UringCmd80::new(Fd(self.file.as_raw_fd()), order).cmd(command.encode()).build();
        let entry = entry.user_data(self.last);
        // SAFETY: the memory is that of a caller of `order`, which waits for the end, or there is
        // none.
        let pushed = unsafe { self.ring.submission().push(&entry) };
        debug_assert!(pushed.is_ok(), "one order at a time");
    }
}
