// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tells of an open file that its path leads to no more.
//!
//! An open file outlives its name. What is written to a file without one is gone when the file is
//! closed, and nobody sees that before.

use std::io::ErrorKind;
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;

use super::DeviceFile;

/// What became of the name of a file that is open.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Astray {
    /// The file has no name: it is gone when it is closed. This path leads to it until then.
    Nameless(PathBuf),
    /// The file has another name. Whoever opens the path finds another file, or none.
    Renamed,
}

impl DeviceFile {
    /// What became of the name of this file; `None` if its path leads to it. Of what is no regular
    /// file, or is far away, nothing is known.
    #[must_use]
    pub fn astray(&self) -> Option<Astray> {
        self.size_at_hand()?;
        let file = self.file().filter(|_| !self.is_block_device())?;
        let open = file.metadata().ok()?;
        match std::fs::metadata(self.path()) {
            Ok(there) if (there.dev(), there.ino()) == (open.dev(), open.ino()) => None,
            Err(error) if error.kind() != ErrorKind::NotFound => None,
            _ if open.nlink() > 0 => Some(Astray::Renamed),
            _ => Some(Astray::Nameless(format!("/proc/{}/fd/{}", std::process::id(), file.as_raw_fd()).into())),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs::{self, File};

    use super::*;
    use crate::real::Access;

    #[test]
    fn a_file_is_astray_when_its_path_leads_elsewhere() {
        let folder = tempfile::tempdir().unwrap();
        let place = |name: &str| folder.path().join(name);
        let made = |name: &str| File::create(place(name)).unwrap().set_len(4096).unwrap();
        made("disk");
        let device = DeviceFile::open(&place("disk"), Access::Exclusive).unwrap();
        device.write_at(0, &[7; 4096]).unwrap();
        assert_eq!(device.astray(), None);
        fs::rename(place("disk"), place("other")).unwrap();
        assert_eq!(device.astray(), Some(Astray::Renamed));
        made("disk");
        assert_eq!(device.astray(), Some(Astray::Renamed));
        fs::rename(place("other"), place("disk")).unwrap();
        assert_eq!(device.astray(), None);
        made("new");
        fs::rename(place("new"), place("disk")).unwrap();
        let Some(Astray::Nameless(open)) = device.astray() else { panic!("{:?}", device.astray()) };
        assert_eq!(fs::read(open).unwrap(), [7; 4096]);
    }
}
