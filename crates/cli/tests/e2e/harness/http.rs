// SPDX-License-Identifier: MIT OR Apache-2.0
//! The HTTP port of a daemon, asked without any client's help.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};

/// A port that nobody listens at.
pub(crate) fn free_port() -> u16 {
    let listener = TcpListener::bind(("127.0.0.1", 0)).expect("loopback has ports");
    listener.local_addr().expect("it is bound").port()
}

/// The body of a good answer to GET.
#[track_caller]
pub(crate) fn get(port: u16, path: &str) -> String {
    let answer = answer(port, path);
    assert!(answer.starts_with("HTTP/1.1 200"), "{path}: {answer}");
    answer.split_once("\r\n\r\n").expect("an answer has a body").1.to_owned()
}

/// The whole answer to GET.
#[track_caller]
pub(crate) fn answer(port: u16, path: &str) -> String {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).expect("the daemon listens");
    let request = format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).expect("it listens");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("it answers");
    answer
}
