// SPDX-License-Identifier: MIT OR Apache-2.0
//! Connects to a server: the socket, the handshake, TLS. Waits, but never longer than a limit.

use std::fmt;
use std::io;
use std::path::Path;
use std::time::{Duration, Instant};

use flashfront_nbd_proto::client::{Broken, Client, ExportInfo, Step, Wanted};
use flashfront_nbd_proto::uri::{Address, Uri};
use flashfront_nbd_proto::wire::Replies;

use super::connection::Connection;
use super::stream::{Socket, Stream, left};
#[cfg(feature = "tls")]
use super::tls::Tls;
use crate::real::error::OpenError;

/// A server that has not finished its handshake by then is taken for dead.
pub(super) const LIMIT: Duration = Duration::from_secs(10);
/// The time that each further connection gets: some servers let them wait for ever.
const FURTHER_LIMIT: Duration = Duration::from_secs(1);
/// Connections to a server that lets several see one disk.
const LINES_MAX: usize = 4;
/// Characters of a server's words that are told.
const WORDS_MAX: usize = 300;
/// The context that tells of holes.
pub(super) const ALLOCATION: &str = "base:allocation";

/// What to do when TLS does not come about.
pub(super) const CERTIFICATES: &str = "see that ca-cert.pem is of the authority that signed the server's certificate, that the certificate has the server's name (else ?tls-hostname=NAME), and whether the server asks for client-cert.pem";

/// Why there is no connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct DialError {
    pub(super) what: String,
    pub(super) todo: &'static str,
}

impl fmt::Display for DialError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}; {}", self.what, self.todo)
    }
}

impl DialError {
    pub(super) fn of(self, path: &Path) -> OpenError {
        OpenError::Nbd { path: path.into(), what: self.what, todo: self.todo }
    }

    fn io(doing: &str, error: &io::Error) -> Self {
        let todo = match error.kind() {
            io::ErrorKind::TimedOut => {
                "the server does not answer; see whether it is stopped or busy with another client"
            }
            io::ErrorKind::UnexpectedEof => {
                "the server hung up; see its log, and whether it serves several clients (qemu-nbd --shared=8 --persistent)"
            }
            // An alert of TLS.
            io::ErrorKind::InvalidData => CERTIFICATES,
            io::ErrorKind::PermissionDenied => "it takes a user who may write to the server's socket",
            _ => "is the server running, and is the address right?",
        };
        let error = match error.kind() {
            io::ErrorKind::TimedOut => format!("no answer within {} s", LIMIT.as_secs()),
            _ => error.to_string(),
        };
        Self { what: format!("{doing}: {error}"), todo }
    }

    fn broken(broken: &Broken) -> Self {
        let todo = match broken {
            Broken::Refused { kind, .. } if *kind == flashfront_nbd_proto::wire::answer::TLS_REQUIRED => {
                "use nbds:// or nbds+unix://"
            }
            Broken::Refused { .. } => "nbdinfo --list URI shows the names that the server has",
            Broken::Protocol(_) => "see what listens there, and which version of the server",
        };
        Self { what: harmless(&broken.to_string()), todo }
    }
}

/// A server's words as they may go to a terminal or a log.
pub(super) fn harmless(text: &str) -> String {
    let plain = |char: char| if char.is_control() { ' ' } else { char };
    text.chars().map(plain).take(WORDS_MAX).collect()
}

/// A server, and how to reach it.
#[derive(Debug)]
pub(super) struct Server {
    uri: Uri,
    #[cfg(feature = "tls")]
    tls: Option<Tls>,
}

impl Server {
    /// Reads the certificates that the URI names.
    pub(super) fn of(uri: Uri) -> Result<Self, DialError> {
        #[cfg(feature = "tls")]
        let tls = uri.tls.then(|| Tls::load(&uri)).transpose()?;
        #[cfg(not(feature = "tls"))]
        if uri.tls {
            return Err(DialError {
                what: "this program was built without TLS".to_owned(),
                todo: "build it with --features tls",
            });
        }
        Ok(Self {
            uri,
            #[cfg(feature = "tls")]
            tls,
        })
    }

    /// The first connection.
    pub(super) fn dial(&self) -> Result<Connection, DialError> {
        self.connect(Instant::now() + LIMIT)
    }

    /// The connections beside a first one, as far as the server gives them.
    pub(super) fn dial_further(&self, info: &ExportInfo) -> Vec<Connection> {
        let wanted = if info.can_multi_conn() { LINES_MAX - 1 } else { 0 };
        let dial =
            |_| self.connect(Instant::now() + FURTHER_LIMIT).ok().filter(|connection| connection.info() == *info);
        (0..wanted).map_while(dial).collect()
    }

    fn connect(&self, deadline: Instant) -> Result<Connection, DialError> {
        let doing = match &self.uri.address {
            Address::Tcp { host, port } => format!("connecting to {host} port {port}"),
            Address::Unix(path) => format!("connecting to the socket {path}"),
        };
        let socket = Socket::connect(&self.uri.address, deadline).map_err(|error| DialError::io(&doing, &error))?;
        let protocol = Client::new(Wanted {
            export: self.uri.export.clone(),
            tls: self.uri.tls,
            replies: Replies::Extended,
            contexts: vec![ALLOCATION.to_owned()],
        });
        let mut connection = Connection::new(Stream::Plain(socket), protocol);
        loop {
            match connection.shake_hands(deadline).map_err(|error| DialError::io("the NBD handshake", &error))? {
                Err(broken) => return Err(DialError::broken(&broken)),
                Ok(Step::Opened(_)) => return Ok(connection),
                Ok(Step::StartTls(_)) => connection = self.start_tls(connection, deadline)?,
                // A server may talk for ever.
                Ok(_) => drop(left(deadline).map_err(|error| DialError::io("the NBD handshake", &error))?),
            }
        }
    }

    #[cfg(feature = "tls")]
    fn start_tls(&self, connection: Connection, deadline: Instant) -> Result<Connection, DialError> {
        let Some(tls) = &self.tls else { return Ok(connection) };
        connection.inside(|stream| match stream {
            Stream::Plain(socket) => Ok(Stream::Tls(Box::new(tls.start(socket, deadline)?))),
            inside => Ok(inside),
        })
    }

    #[cfg(not(feature = "tls"))]
    fn start_tls(&self, connection: Connection, deadline: Instant) -> Result<Connection, DialError> {
        // A URI with TLS was refused.
        let _ = deadline;
        Ok(connection)
    }
}
