// SPDX-License-Identifier: MIT OR Apache-2.0
//! An NBD server with a volatile cache, which can die: what no flush covered is gone then.

use std::io::{Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};

use flashfront_nbd_proto::server::{Export, Extent, Part, Refusal, Reply, Security, Server, Step};
use flashfront_nbd_proto::wire::{Errno, export_flag};
use flashfront_nbd_proto::{Ask, BlockSizes, Request};

/// All that a server may offer.
pub(super) const ALL: u16 = export_flag::SEND_FLUSH
    | export_flag::SEND_FUA
    | export_flag::SEND_TRIM
    | export_flag::SEND_WRITE_ZEROES
    | export_flag::CAN_MULTI_CONN;

/// What the server is, and what it has.
pub(super) struct Disk {
    pub(super) flags: u16,
    pub(super) sizes: BlockSizes,
    /// What is read.
    pub(super) content: Vec<u8>,
    /// What is left after its death.
    pub(super) durable: Vec<u8>,
    /// Requests are carried out and not answered.
    pub(super) mute: bool,
    /// The server dies by itself after so many requests.
    pub(super) dies_after: Option<u64>,
    /// Each request fails with this.
    pub(super) fails: Option<Errno>,
    /// Requests that were carried out.
    pub(super) requests: u64,
    /// Connections, and how often it has died.
    sockets: Vec<UnixStream>,
    life: u64,
}

impl Disk {
    pub(super) fn is_alive(&self) -> bool {
        !self.sockets.is_empty()
    }

    /// Closes all connections and forgets what is not durable.
    pub(super) fn die(&mut self) {
        self.life += 1;
        self.dies_after = None;
        self.content = self.durable.clone();
        for socket in self.sockets.drain(..) {
            let _ = socket.shutdown(std::net::Shutdown::Both);
        }
    }
}

/// A server in this process.
pub(super) struct Served {
    pub(super) path: PathBuf,
    disk: Arc<(Mutex<Disk>, Condvar)>,
}

impl Served {
    pub(super) fn new(folder: &Path, bytes: usize, flags: u16, minimum: u32) -> Self {
        let disk = Disk {
            flags,
            sizes: BlockSizes { minimum, preferred: 4096.max(minimum), maximum: 1 << 20 },
            content: vec![0; bytes],
            durable: vec![0; bytes],
            mute: false,
            dies_after: None,
            fails: None,
            requests: 0,
            sockets: Vec::new(),
            life: 0,
        };
        let served = Self { path: folder.join("nbd.sock"), disk: Arc::new((Mutex::new(disk), Condvar::new())) };
        served.listen();
        served
    }

    pub(super) fn uri(&self) -> PathBuf {
        format!("nbd+unix:///?socket={}", self.path.display()).into()
    }

    pub(super) fn disk(&self) -> MutexGuard<'_, Disk> {
        self.disk.0.lock().unwrap()
    }

    /// Waits until the disk is so.
    pub(super) fn wait(&self, is: impl Fn(&Disk) -> bool) {
        let mut disk = self.disk();
        while !is(&disk) {
            disk = self.disk.1.wait(disk).unwrap();
        }
    }

    /// Nobody can connect any more.
    pub(super) fn hide(&self) {
        std::fs::remove_file(&self.path).unwrap();
    }

    /// Listens at the same path, again.
    pub(super) fn listen(&self) {
        let (listener, disk) = (UnixListener::bind(&self.path).unwrap(), Arc::clone(&self.disk));
        // Ends with the test's process.
        std::thread::spawn(move || {
            for socket in listener.incoming().flatten() {
                let disk = Arc::clone(&disk);
                std::thread::spawn(move || {
                    serve(&socket, &disk);
                    // The disk has a descriptor of it, too.
                    let _ = socket.shutdown(std::net::Shutdown::Both);
                });
            }
        });
    }
}

fn serve(mut socket: &UnixStream, shared: &(Mutex<Disk>, Condvar)) {
    let lock = || shared.0.lock().unwrap();
    let (life, export) = {
        let mut disk = lock();
        disk.sockets.push(socket.try_clone().unwrap());
        let (size_bytes, flags, sizes) = (disk.content.len() as u64, disk.flags, disk.sizes);
        (disk.life, Export { name: "ram".into(), description: String::new(), size_bytes, flags, sizes })
    };
    shared.1.notify_all();
    let (mut out, mut input, mut buffer) = (Vec::new(), Vec::new(), vec![0; 64 << 10]);
    let mut server = Server::new(Security::Off, &mut out);
    let mut write: Option<(Request, Vec<u8>)> = None;
    loop {
        if socket.write_all(&out).is_err() {
            return;
        }
        out.clear();
        match server.step(&input, std::slice::from_ref(&export), &mut out) {
            Step::Took(took) | Step::Opened { took, .. } => drop(input.drain(..took)),
            Step::Request { took, request } => {
                input.drain(..took);
                if request.ask == Ask::Write {
                    write = Some((request, Vec::new()));
                    continue;
                }
                if !answer(&server, request, &[], life, shared, &mut out) {
                    return;
                }
            }
            Step::Payload(left) if !input.is_empty() => {
                let here = (left as usize).min(input.len());
                let (request, mut payload) = write.take().unwrap();
                payload.extend(input.drain(..here));
                server.payload_taken(here as u64);
                if here < left as usize {
                    write = Some((request, payload));
                } else if !answer(&server, request, &payload, life, shared, &mut out) {
                    return;
                }
            }
            Step::End => return,
            Step::Refused { refusal, .. } => panic!("the client asked for nonsense: {refusal:?}"),
            Step::Need | Step::Payload(_) => match socket.read(&mut buffer) {
                Ok(bytes) if bytes > 0 => input.extend_from_slice(&buffer[..bytes]),
                _ => return,
            },
            Step::StartTls(_) => unreachable!("there is no TLS"),
        }
    }
}

/// Carries a request out; false if the server is dead.
fn answer(
    server: &Server,
    request: Request,
    payload: &[u8],
    life: u64,
    shared: &(Mutex<Disk>, Condvar),
    out: &mut Vec<u8>,
) -> bool {
    let mut disk = shared.0.lock().unwrap();
    shared.1.notify_all();
    let disk = &mut *disk;
    if disk.life != life {
        return false;
    }
    disk.requests += 1;
    let Request { cookie, ask, offset, len, fua } = request;
    let reply = Reply { replies: server.replies(), cookie, offset };
    let range = offset as usize..(offset + len) as usize;
    if let Some(errno) = disk.fails {
        reply.failed(Refusal(errno, "as ordered"), None, out);
        return true;
    }
    let mut said = Vec::new();
    match ask {
        Ask::Read { .. } => {
            reply.data(Part { start: offset, bytes: len as u32, first: true, last: true }, &mut said);
            said.extend_from_slice(&disk.content[range.clone()]);
        }
        Ask::Status { .. } => {
            let hole = |at: usize| disk.content[at..at + 512].iter().all(|byte| *byte == 0);
            let extents: Vec<Extent> =
                range.clone().step_by(512).map(|at| Extent { bytes: 512, hole: hole(at) }).collect();
            reply.extents(&extents, &mut said);
        }
        _ => reply.done(&mut said),
    }
    match ask {
        Ask::Write => disk.content[range.clone()].copy_from_slice(payload),
        Ask::Trim | Ask::Zeroes { .. } => disk.content[range.clone()].fill(0),
        Ask::Flush => disk.durable.clone_from(&disk.content),
        _ => {}
    }
    if fua {
        disk.durable[range.clone()].copy_from_slice(&disk.content[range]);
    }
    if !disk.mute {
        out.extend(said);
    }
    if let Some(left) = disk.dies_after.as_mut() {
        *left -= 1;
        if *left == 0 {
            disk.die();
            return false;
        }
    }
    true
}
