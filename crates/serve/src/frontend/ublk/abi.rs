// SPDX-License-Identifier: MIT OR Apache-2.0
//! Numbers and layouts of linux/ublk_cmd.h, in which the kernel's ublk driver speaks.
//!
//! Only those in use are here, in their newest form (ioctl-encoded commands, Linux 6.5). The sizes
//! are checked at compile time, since they are part of the numbers.

/// `_IOR('u', number, struct of that size)`.
const fn ior(number: u32, size: usize) -> u32 {
    2 << 30 | (size as u32) << 16 | (b'u' as u32) << 8 | number
}

/// `_IOWR` of the same.
const fn iowr(number: u32, size: usize) -> u32 {
    1 << 30 | ior(number, size)
}

/// Orders for the driver, on /dev/ublk-control.
pub(super) mod control {
    use super::{ControlCommand, ior, iowr};

    const SIZE: usize = size_of::<ControlCommand>();
    pub(in super::super) const GET_DEVICE_INFO: u32 = ior(0x02, SIZE);
    pub(in super::super) const ADD_DEVICE: u32 = iowr(0x04, SIZE);
    pub(in super::super) const DELETE_DEVICE: u32 = iowr(0x05, SIZE);
    pub(in super::super) const START_DEVICE: u32 = iowr(0x06, SIZE);
    pub(in super::super) const STOP_DEVICE: u32 = iowr(0x07, SIZE);
    pub(in super::super) const SET_PARAMETERS: u32 = iowr(0x08, SIZE);
    pub(in super::super) const START_RECOVERY: u32 = iowr(0x10, SIZE);
    pub(in super::super) const END_RECOVERY: u32 = iowr(0x11, SIZE);
    pub(in super::super) const GET_FEATURES: u32 = ior(0x13, SIZE);
}

/// Orders for a device, on /dev/ublkcN.
pub(super) mod io {
    use super::{IoCommand, iowr};

    pub(in super::super) const FETCH: u32 = iowr(0x20, size_of::<IoCommand>());
    pub(in super::super) const COMMIT_AND_FETCH: u32 = iowr(0x21, size_of::<IoCommand>());
}

/// Abilities of a device that can be asked for.
pub(super) mod feature {
    pub(in super::super) const USER_RECOVERY: u64 = 1 << 3;
    pub(in super::super) const USER_RECOVERY_REISSUE: u64 = 1 << 4;
    pub(in super::super) const COMMANDS_ARE_IOCTLS: u64 = 1 << 6;
    pub(in super::super) const USER_COPY: u64 = 1 << 7;
}

/// The states of a device.
pub(super) mod state {
    pub(in super::super) const DEAD: u16 = 0;
    pub(in super::super) const QUIESCED: u16 = 2;
}

/// Operations of the block layer.
pub(super) mod op {
    pub(in super::super) const READ: u32 = 0;
    pub(in super::super) const WRITE: u32 = 1;
    pub(in super::super) const FLUSH: u32 = 2;
    pub(in super::super) const DISCARD: u32 = 3;
    pub(in super::super) const WRITE_ZEROES: u32 = 5;
    pub(in super::super) const MASK: u32 = 0xff;
    pub(in super::super) const FUA: u32 = 1 << 13;
    pub(in super::super) const NOUNMAP: u32 = 1 << 15;
}

/// The place on /dev/ublkcN where the payload of request `tag` of queue 0 begins.
pub(super) const fn payload_at(tag: u16) -> u64 {
    0x8000_0000 + ((tag as u64) << 25)
}

/// `ublksrv_ctrl_cmd`
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub(super) struct ControlCommand {
    pub(super) device: u32,
    pub(super) queue: u16,
    pub(super) len: u16,
    pub(super) addr: u64,
    pub(super) data: u64,
    pub(super) path_len: u16,
    pub(super) pad: u16,
    pub(super) reserved: u32,
}

/// `ublksrv_ctrl_dev_info`
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub(super) struct DeviceInfo {
    pub(super) queues: u16,
    pub(super) depth: u16,
    pub(super) state: u16,
    pub(super) pad0: u16,
    pub(super) io_bytes_max: u32,
    pub(super) device: u32,
    pub(super) pid: i32,
    pub(super) pad1: u32,
    pub(super) features: u64,
    /// Ours to use; the driver keeps it.
    pub(super) mark: u64,
    pub(super) owner: [u32; 2],
    pub(super) reserved: [u64; 2],
}

/// `ublk_params`, as far as it is set: a shorter one is taken too.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub(super) struct Parameters {
    pub(super) len: u32,
    /// The sets of parameters that are filled in: bit 0 and bit 1.
    pub(super) types: u32,
    /// Bit 2: there is something to flush. Bit 3: FUA is understood.
    pub(super) attributes: u32,
    pub(super) logical_shift: u8,
    pub(super) physical_shift: u8,
    pub(super) io_opt_shift: u8,
    pub(super) io_min_shift: u8,
    pub(super) io_sectors_max: u32,
    pub(super) chunk_sectors: u32,
    pub(super) sectors: u64,
    pub(super) virt_boundary_mask: u64,
    pub(super) discard_alignment: u32,
    pub(super) discard_granularity: u32,
    pub(super) discard_sectors_max: u32,
    pub(super) zero_sectors_max: u32,
    pub(super) discard_segments_max: u16,
    pub(super) reserved: u16,
    /// Fills the C struct to its alignment; `len` does not count it.
    pub(super) pad: u32,
}

/// The bytes of [`Parameters`] that mean something.
pub(super) const PARAMETERS_LEN: u32 = 60;

/// `ublksrv_io_desc`
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(super) struct Description {
    pub(super) op_flags: u32,
    pub(super) sectors: u32,
    pub(super) first_sector: u64,
    pub(super) addr: u64,
}

/// `ublksrv_io_cmd`
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(super) struct IoCommand {
    pub(super) queue: u16,
    pub(super) tag: u16,
    pub(super) result: i32,
    pub(super) addr: u64,
}

impl IoCommand {
    pub(super) fn encode(self) -> [u8; 16] {
        let mut bytes = [0; 16];
        bytes[0..2].copy_from_slice(&self.queue.to_ne_bytes());
        bytes[2..4].copy_from_slice(&self.tag.to_ne_bytes());
        bytes[4..8].copy_from_slice(&self.result.to_ne_bytes());
        bytes[8..16].copy_from_slice(&self.addr.to_ne_bytes());
        bytes
    }
}

impl ControlCommand {
    /// Encodes it as an SQE of 128 bytes has it.
    pub(super) fn encode(self) -> [u8; 80] {
        let mut bytes = [0; 80];
        bytes[0..4].copy_from_slice(&self.device.to_ne_bytes());
        bytes[4..6].copy_from_slice(&self.queue.to_ne_bytes());
        bytes[6..8].copy_from_slice(&self.len.to_ne_bytes());
        bytes[8..16].copy_from_slice(&self.addr.to_ne_bytes());
        bytes[16..24].copy_from_slice(&self.data.to_ne_bytes());
        bytes
    }
}

const _: () = assert!(size_of::<ControlCommand>() == 32);
const _: () = assert!(size_of::<DeviceInfo>() == 64);
const _: () = assert!(std::mem::offset_of!(DeviceInfo, mark) == 32);
const _: () = assert!(size_of::<Parameters>() == 64);
const _: () = assert!(std::mem::offset_of!(Parameters, discard_alignment) == 40);
const _: () = assert!(std::mem::offset_of!(Parameters, pad) == PARAMETERS_LEN as usize);
const _: () = assert!(size_of::<Description>() == 24);
const _: () = assert!(size_of::<IoCommand>() == 16);

#[cfg(test)]
mod tests {
    use super::*;

    /// Numbers that a C compiler makes of linux/ublk_cmd.h of Linux 6.12.
    #[test]
    fn the_numbers_are_the_kernels() {
        assert_eq!(control::GET_DEVICE_INFO, 0x8020_7502);
        assert_eq!(control::ADD_DEVICE, 0xc020_7504);
        assert_eq!(control::DELETE_DEVICE, 0xc020_7505);
        assert_eq!(control::START_DEVICE, 0xc020_7506);
        assert_eq!(control::STOP_DEVICE, 0xc020_7507);
        assert_eq!(control::SET_PARAMETERS, 0xc020_7508);
        assert_eq!(control::START_RECOVERY, 0xc020_7510);
        assert_eq!(control::END_RECOVERY, 0xc020_7511);
        assert_eq!(control::GET_FEATURES, 0x8020_7513);
        assert_eq!(io::FETCH, 0xc010_7520);
        assert_eq!(io::COMMIT_AND_FETCH, 0xc010_7521);
        assert_eq!(payload_at(3), 0x8600_0000);
    }
}
