// SPDX-License-Identifier: MIT OR Apache-2.0
//! A target of a replay as a thing with blocks: a device or file past the page cache, or NBD.

use std::fs::{File, OpenOptions};
use std::io::{self, Seek, SeekFrom};
use std::os::unix::fs::{FileExt, FileTypeExt, OpenOptionsExt};
use std::path::Path;

use rustix::fs::{FallocateFlags, OFlags, fallocate, ioctl_blksszget};

use super::nbd::Nbd;
use crate::error::BenchError;
use crate::suite::Site;

/// Something that answers requests from many threads.
pub(super) trait Blocks: Send + Sync {
    fn size_bytes(&self) -> u64;

    /// Requests begin and end at multiples of it.
    fn unit_bytes(&self) -> u64;

    /// Reads into `buffer`, which begins at a multiple of 4 KiB in memory. What comes may be
    /// dropped.
    fn read(&self, at: u64, buffer: &mut [u8]) -> io::Result<()>;

    fn write(&self, at: u64, data: &[u8]) -> io::Result<()>;

    /// Whether discards are possible there at all.
    fn discard(&self, at: u64, len: u64) -> io::Result<bool>;

    fn flush(&self) -> io::Result<()>;
}

pub(super) fn open(place: &Site, writes: bool) -> Result<Box<dyn Blocks>, BenchError> {
    let failed = |name: &dyn std::fmt::Display, error: &io::Error| BenchError::Failed(format!("{name}: {error}"));
    match place {
        Site::Device(path) | Site::File(path) => {
            Ok(Box::new(Direct::open(path, writes).map_err(|error| failed(&path.display(), &error))?))
        }
        Site::Nbd(uri) => Ok(Box::new(Nbd::connect(uri).map_err(|error| failed(uri, &error))?)),
        Site::Folder(path) => Err(BenchError::Wrong(format!(
            "{}: a folder; a trace is replayed on a device, a file or an NBD export",
            path.display()
        ))),
    }
}

/// A device or a file.
struct Direct {
    file: File,
    size: u64,
    unit: u64,
}

impl Direct {
    fn open(path: &Path, writes: bool) -> io::Result<Self> {
        let open = |flags: OFlags| {
            let mut options = OpenOptions::new();
            options.read(true).write(writes).custom_flags(flags.bits().cast_signed()).open(path)
        };
        // Some file systems (of RAM) have no way past the page cache.
        let file = match open(OFlags::DIRECT) {
            Err(error) if error.kind() == io::ErrorKind::InvalidInput => open(OFlags::empty())?,
            file => file?,
        };
        let size = (&file).seek(SeekFrom::End(0))?;
        // A file system does not say the unit that it wants of a file; all take 4 KiB.
        let is_device = file.metadata()?.file_type().is_block_device();
        let unit = if is_device { u64::from(ioctl_blksszget(&file)?) } else { 4096 };
        Ok(Self { file, size, unit })
    }
}

impl Blocks for Direct {
    fn size_bytes(&self) -> u64 {
        self.size
    }

    fn unit_bytes(&self) -> u64 {
        self.unit
    }

    fn read(&self, at: u64, buffer: &mut [u8]) -> io::Result<()> {
        self.file.read_exact_at(buffer, at)
    }

    fn write(&self, at: u64, data: &[u8]) -> io::Result<()> {
        self.file.write_all_at(data, at)
    }

    /// A hole is what both a file and, since Linux 4.9, a block device take for a discard.
    fn discard(&self, at: u64, len: u64) -> io::Result<bool> {
        match fallocate(&self.file, FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE, at, len) {
            Err(rustix::io::Errno::OPNOTSUPP) => Ok(false),
            done => done.map(|()| true).map_err(io::Error::from),
        }
    }

    fn flush(&self) -> io::Result<()> {
        self.file.sync_data()
    }
}
