// SPDX-License-Identifier: MIT OR Apache-2.0
//! A store in RAM, which speaks a part of S3's protocol. A volume needs no more of it: PUT (also if
//! absent), GET of ranges, DELETE, a list.
//!
//! A real store has processors of its own. This one takes little of those that are measured.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::{BufRead as _, BufReader, Error, ErrorKind, Read as _, Result, Write as _};
use std::net::{TcpListener, TcpStream};
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;

/// Bytes that are read from a connection at a time.
const PIECE_BYTES: usize = 1 << 20;
/// Nobody looks at them, but clients want them.
const ALWAYS: &str = "ETag: \"0\"\r\nLast-Modified: Thu, 01 Jan 1970 00:00:00 GMT\r\n";

/// The objects by bucket and name.
#[derive(Clone, Default)]
pub(super) struct Objects(Arc<Mutex<BTreeMap<String, Arc<Vec<u8>>>>>);

/// What a client wants.
#[derive(Default)]
struct Request {
    method: String,
    /// Bucket and name, and what is behind the question mark.
    path: String,
    query: String,
    range: Option<Range<usize>>,
    /// Only if there is no such object.
    create: bool,
    body: Vec<u8>,
}

/// Status, further header lines, body.
type Answer = (&'static str, String, Arc<Vec<u8>>);

impl Objects {
    /// Serves them at a port of this machine until this process ends.
    pub(super) fn serve(&self) -> Result<u16> {
        let listener = TcpListener::bind(("127.0.0.1", 0))?;
        let port = listener.local_addr()?.port();
        let objects = self.clone();
        thread::spawn(move || {
            for client in listener.incoming().map_while(Result::ok) {
                let objects = objects.clone();
                // A client that is gone, or says nonsense, is let go.
                thread::spawn(move || objects.converse(&client));
            }
        });
        Ok(port)
    }

    /// Forgets all objects whose names begin so.
    pub(super) fn forget(&self, prefix: &str) {
        self.all().retain(|name, _| !name.starts_with(prefix));
    }

    fn all(&self) -> MutexGuard<'_, BTreeMap<String, Arc<Vec<u8>>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn converse(&self, client: &TcpStream) -> Result<()> {
        client.set_nodelay(true)?;
        let mut from = BufReader::with_capacity(PIECE_BYTES, client);
        let mut to = client;
        while let Some(request) = read(&mut from)? {
            let (status, more, body) = self.answer(request);
            let len = body.len();
            to.write_all(format!("HTTP/1.1 {status}\r\nContent-Length: {len}\r\n{ALWAYS}{more}\r\n").as_bytes())?;
            to.write_all(&body)?;
        }
        Ok(())
    }

    fn answer(&self, request: Request) -> Answer {
        let empty = |status| (status, String::new(), Arc::default());
        let Request { method, path, query, range, create, body } = request;
        let mut all = self.all();
        match method.as_str() {
            "PUT" if create && all.contains_key(&path) => empty("412 Precondition Failed"),
            "PUT" => {
                all.insert(path, Arc::new(body));
                empty("200 OK")
            }
            "DELETE" => {
                all.remove(&path);
                empty("204 No Content")
            }
            "GET" if query.contains("list-type=") => {
                let prefix = query.split('&').find_map(|it| it.strip_prefix("prefix=")).unwrap_or_default();
                let list = list(&all, &path, &prefix.replace("%2F", "/"));
                ("200 OK", "Content-Type: application/xml\r\n".to_owned(), Arc::new(list.into_bytes()))
            }
            "GET" => match (all.get(&path), range) {
                (None, _) => empty("404 Not Found"),
                (Some(object), None) => ("200 OK", String::new(), Arc::clone(object)),
                (Some(object), Some(range)) => match object.get(range.start..range.end.min(object.len())) {
                    Some(part) if !part.is_empty() => {
                        let last = range.start + part.len() - 1;
                        let place = format!("Content-Range: bytes {}-{last}/{}\r\n", range.start, object.len());
                        ("206 Partial Content", place, Arc::new(part.to_vec()))
                    }
                    _ => empty("416 Range Not Satisfiable"),
                },
            },
            _ => empty("501 Not Implemented"),
        }
    }
}

fn list(all: &BTreeMap<String, Arc<Vec<u8>>>, bucket: &str, prefix: &str) -> String {
    let mut text = String::from("<ListBucketResult><IsTruncated>false</IsTruncated>");
    let bucket = format!("{}/", bucket.trim_end_matches('/'));
    let from = format!("{bucket}{prefix}");
    for (name, object) in all.range(from.clone()..).take_while(|it| it.0.starts_with(&from)) {
        let (key, size) = (&name[bucket.len()..], object.len());
        let _ = write!(text, "<Contents><Key>{key}</Key><LastModified>1970-01-01T00:00:00.000Z</LastModified>");
        let _ = write!(text, "<ETag>\"0\"</ETag><Size>{size}</Size></Contents>");
    }
    text + "</ListBucketResult>"
}

/// Reads the next request; `None`: the client has ended.
fn read(from: &mut BufReader<&TcpStream>) -> Result<Option<Request>> {
    let nonsense = || Error::from(ErrorKind::InvalidData);
    let mut line = String::new();
    if from.read_line(&mut line)? == 0 {
        return Ok(None);
    }
    let mut words = line.split_whitespace();
    let (method, target) = words.next().zip(words.next()).ok_or_else(nonsense)?;
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    let (method, path, query) = (method.to_owned(), path.to_owned(), query.to_owned());
    let (mut request, mut len) = (Request { method, path, query, ..Request::default() }, 0);
    loop {
        line.clear();
        from.read_line(&mut line)?;
        let Some((name, value)) = line.trim_end().split_once(": ") else { break };
        match name.to_ascii_lowercase().as_str() {
            "content-length" => len = value.parse().map_err(|_| nonsense())?,
            "if-none-match" => request.create = value == "*",
            "range" => request.range = Some(range(value).ok_or_else(nonsense)?),
            _ => {}
        }
    }
    request.body.reserve_exact(len as usize);
    from.take(len).read_to_end(&mut request.body)?;
    Ok(Some(request).filter(|it| it.body.len() as u64 == len))
}

/// Reads `bytes=FIRST-LAST`.
fn range(value: &str) -> Option<Range<usize>> {
    let (first, last) = value.strip_prefix("bytes=")?.split_once('-')?;
    let last: usize = last.parse().ok()?;
    Some(first.parse().ok()?..last + 1)
}
