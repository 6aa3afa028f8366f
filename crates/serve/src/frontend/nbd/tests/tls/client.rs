// SPDX-License-Identifier: MIT OR Apache-2.0
//! A client inside TLS, of rustls's other half: blocking, byte by byte what a test wants to say.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::Duration;

use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection, StreamOwned};

use super::super::super::Listen;
use super::super::talk::{client_flags, hello};
use flashfront_nbd_proto::wire::{self, Fields, answer, option};

/// A test that would hang fails instead.
const PATIENCE: Duration = Duration::from_secs(60);

/// A socket of either kind.
pub(super) trait Duplex: Read + Write {}
impl Duplex for TcpStream {}
impl Duplex for UnixStream {}

/// A client inside TLS.
pub(super) type TlsClient = StreamOwned<ClientConnection, Box<dyn Duplex>>;

/// A connection of which nothing is said.
pub(super) fn dial(at: &Listen) -> Box<dyn Duplex> {
    match at {
        Listen::Unix(path) => {
            let socket = UnixStream::connect(path).unwrap();
            socket.set_read_timeout(Some(PATIENCE)).unwrap();
            Box::new(socket)
        }
        Listen::Tcp { host, port } => {
            let socket = TcpStream::connect((host.as_str(), *port)).unwrap();
            socket.set_read_timeout(Some(PATIENCE)).unwrap();
            socket.set_nodelay(true).unwrap();
            Box::new(socket)
        }
    }
}

/// The client's flags and STARTTLS.
pub(super) fn ask() -> Vec<u8> {
    let mut bytes = client_flags();
    wire::encode_option(&mut bytes, option::STARTTLS, &[]);
    bytes
}

/// Returns the bytes that a server says to this client.
pub(super) fn asked() -> Vec<u8> {
    let mut bytes = b"NBDMAGICIHAVEOPT\0\x03".to_vec();
    wire::encode_answer(&mut bytes, option::STARTTLS, answer::ACK, &[]);
    bytes
}

/// A connection after STARTTLS, when TLS begins.
pub(super) fn dial_and_ask(at: &Listen) -> Box<dyn Duplex> {
    let mut socket = dial(at);
    socket.write_all(&ask()).unwrap();
    let mut said = vec![0; asked().len()];
    socket.read_exact(&mut said).unwrap();
    assert_eq!(said, asked());
    socket
}

/// The client's half of TLS.
pub(super) fn session(config: &Arc<ClientConfig>) -> ClientConnection {
    ClientConnection::new(Arc::clone(config), ServerName::try_from("localhost").unwrap()).unwrap()
}

/// A connection after the TLS handshake.
pub(super) fn enter(at: &Listen, config: &Arc<ClientConfig>) -> io::Result<TlsClient> {
    let mut client = StreamOwned::new(session(config), dial_and_ask(at));
    while client.conn.is_handshaking() {
        client.conn.complete_io(&mut client.sock)?;
    }
    Ok(client)
}

/// The options that come inside TLS: all but the flags, which were said before.
pub(super) fn options(structured: bool) -> Vec<u8> {
    hello(structured)[4..].to_vec()
}

/// A connection that has opened the export.
pub(super) fn open(at: &Listen, config: &Arc<ClientConfig>, structured: bool) -> io::Result<TlsClient> {
    let mut client = enter(at, config)?;
    client.write_all(&options(structured))?;
    hear_options(&mut client)?;
    Ok(client)
}

/// Reads the answers to options, up to the last one to GO; their kinds.
pub(super) fn hear_options(client: &mut TlsClient) -> io::Result<Vec<u32>> {
    let mut kinds = Vec::new();
    loop {
        let mut head = [0; 20];
        client.read_exact(&mut head)?;
        let mut fields = Fields(&head);
        assert_eq!(fields.u64(), Some(wire::OPTION_REPLY_MAGIC));
        let (to, kind, len) = (fields.u32().unwrap(), fields.u32().unwrap(), fields.u32().unwrap());
        client.read_exact(&mut vec![0; len as usize])?;
        kinds.push(kind);
        if to == option::GO && kind != answer::INFO {
            return Ok(kinds);
        }
    }
}
