// SPDX-License-Identifier: MIT OR Apache-2.0
//! Whether a path leads back to this daemon: to what it offers to its clients.
//!
//! An origin that the daemon itself serves would wait for the daemon at each start and each stop. A
//! mirror there would wait for itself.
//!
//! Limit: an NBD server or a file system between this daemon and the path is not seen through.

use std::net::{IpAddr, ToSocketAddrs};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use flashfront_device::real::Storage;
use flashfront_nbd_proto::uri::{Address, Uri};

use crate::address::Listen;
use crate::config::{Config, Listener};

/// The file systems of FUSE, by statfs.
const FUSE_MAGIC: u64 = 0x6573_5546;

/// What a daemon offers.
#[derive(Clone, Debug)]
pub(super) struct Own {
    listeners: Vec<Listener>,
    volumes: u32,
}

impl Own {
    /// What is offered by a daemon that serves.
    pub(super) fn of(config: &Config) -> Self {
        Self { listeners: config.listeners.clone(), volumes: config.volumes.len() as u32 }
    }

    /// The place by which a path leads to this daemon. This may ask the daemon, so its thread must
    /// not.
    pub(super) fn reached_by(&self, path: &Path) -> Option<String> {
        let uri: Option<Uri> = path.to_str().filter(|text| Uri::is_uri(text)).and_then(|text| text.parse().ok());
        let behind = Storage::behind(path);
        let leads = |listener: &&Listener| match listener {
            Listener::Nbd(listen) => uri.as_ref().is_some_and(|uri| is_there(&uri.address, listen)),
            Listener::Fuse(folder) => {
                mounted(folder).is_some_and(|file_system| behind.as_ref().is_some_and(|it| it.lies_on(file_system)))
            }
            Listener::Ublk(first) => (*first..first + self.volumes).any(|number| {
                let device = Storage::behind(&PathBuf::from(format!("/dev/ublkb{number}")));
                device.is_some_and(|device| behind.as_ref().is_some_and(|it| it.shared_with(&device).is_some()))
            }),
            // No device of ours speaks it.
            Listener::VhostUserBlk { .. } => false,
        };
        self.listeners.iter().find(leads).map(|listener| match listener {
            Listener::Nbd(listen) => listen.to_string(),
            Listener::Fuse(folder) => folder.display().to_string(),
            Listener::Ublk(first) => format!("/dev/ublkb{first}"),
            Listener::VhostUserBlk { path, .. } => path.display().to_string(),
        })
    }
}

/// The number of the file system of FUSE at this folder.
fn mounted(folder: &Path) -> Option<u64> {
    let is_fuse = rustix::fs::statfs(folder).is_ok_and(|it| it.f_type as u64 & 0xffff_ffff == FUSE_MAGIC);
    is_fuse.then(|| std::fs::metadata(folder).ok().map(|it| it.dev())).flatten()
}

/// Whether an address leads to a listener of this machine.
fn is_there(address: &Address, listen: &Listen) -> bool {
    match (address, listen) {
        (Address::Unix(path), Listen::Unix(own)) => {
            let path = Path::new(path);
            let inode = |path: &Path| std::fs::metadata(path).ok().map(|it| (it.dev(), it.ino()));
            inode(path).is_some_and(|it| inode(own) == Some(it))
        }
        (Address::Tcp { host, port }, Listen::Tcp { host: own, port: own_port }) => {
            let addresses = |host: &str| -> Vec<IpAddr> {
                (host, *port).to_socket_addrs().into_iter().flatten().map(|it| it.ip()).collect()
            };
            port == own_port
                && addresses(own)
                    .iter()
                    .any(|own| addresses(host).iter().any(|it| it == own || own.is_unspecified() && it.is_loopback()))
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn own(listener: Listener) -> Own {
        Own { listeners: vec![listener], volumes: 1 }
    }

    #[test]
    fn a_uri_of_an_own_listener_leads_back() {
        let dir = tempfile::tempdir().unwrap();
        let socket = dir.path().join("s");
        let _listener = std::os::unix::net::UnixListener::bind(&socket).unwrap();
        let link = dir.path().join("link");
        std::os::unix::fs::symlink(&socket, &link).unwrap();
        let at = |path: &Path| PathBuf::from(format!("nbd+unix:///data?socket={}", path.display()));
        let unix = own(Listener::Nbd(Listen::Unix(socket.clone())));
        assert_eq!(unix.reached_by(&at(&link)), Some(format!("unix:{}", socket.display())));
        assert_eq!(unix.reached_by(&at(&dir.path().join("other"))), None);
        assert_eq!(unix.reached_by(&socket), None);
        let tcp = own(Listener::Nbd(Listen::Tcp { host: "0.0.0.0".to_owned(), port: 10809 }));
        assert!(tcp.reached_by(Path::new("nbd://127.0.0.1/data")).is_some());
        assert!(tcp.reached_by(Path::new("nbd://127.0.0.1:10810/data")).is_none());
        assert!(tcp.reached_by(Path::new("nbd://192.0.2.1/data")).is_none());
    }
}
