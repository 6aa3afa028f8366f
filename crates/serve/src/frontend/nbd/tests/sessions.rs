// SPDX-License-Identifier: MIT OR Apache-2.0
//! Our own client and the whole front-end over real sockets: many connections, limits, stopping.

use std::io::{ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use super::super::client::{Client, connect as open};
use super::super::{Ask, BUFFER_BYTES_MIN, ClientError, Listen, Nbd, NbdOptions, Request};
use super::ram::Ram;
use super::server::{Order, Server};
use super::talk::{hello, request};
use flashfront_nbd_proto::client::{Broken, Misuse};
use flashfront_nbd_proto::wire::{CHUNK_MAGIC, Replies, RequestHeader, answer, command, encode_answer, option};

fn connect(server: &Server) -> Client {
    open(&server.at, "", true).unwrap()
}

fn raw(server: &Server) -> UnixStream {
    let Listen::Unix(path) = &server.at else { panic!("not a unix socket") };
    let socket = UnixStream::connect(path).unwrap();
    // A test that would hang fails instead.
    socket.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    socket
}

/// Takes what the server says until its first reply.
fn skip_handshake(socket: &mut UnixStream) {
    socket.read_exact(&mut [0; 18]).unwrap();
    loop {
        let mut head = [0; 20];
        socket.read_exact(&mut head).unwrap();
        let field = |at: usize| u32::from_be_bytes(head[at..at + 4].try_into().unwrap());
        socket.read_exact(&mut vec![0; field(16) as usize]).unwrap();
        if field(12) == 1 {
            return;
        }
    }
}

/// Whether the server has hung up, after whatever it said.
fn hung_up(socket: &mut UnixStream) -> bool {
    match socket.read_to_end(&mut Vec::new()) {
        Ok(_) => true,
        Err(error) => error.kind() == ErrorKind::ConnectionReset,
    }
}

/// A server that answers a read of two sectors with these bytes and no more.
fn answered(reply: &[u8]) -> ClientError {
    let dir = tempfile::tempdir().unwrap();
    let at = Listen::Unix(dir.path().join("nbd"));
    let listener = std::os::unix::net::UnixListener::bind(dir.path().join("nbd")).unwrap();
    let client = std::thread::spawn(move || {
        let mut client = open(&at, "", true).unwrap();
        client.read_at(0, &mut [0; 1024]).unwrap_err()
    });
    let (mut server, _) = listener.accept().unwrap();
    server.write_all(b"NBDMAGICIHAVEOPT\0\x03").unwrap();
    server.read_exact(&mut [0; 4]).unwrap();
    for option in [option::STRUCTURED_REPLY, option::GO] {
        let mut head = [0; 16];
        server.read_exact(&mut head).unwrap();
        let len = u32::from_be_bytes(head[12..].try_into().unwrap());
        server.read_exact(&mut vec![0; len as usize]).unwrap();
        let mut said = Vec::new();
        if option == option::GO {
            let size_and_flags = [&[0, 0], &8192_u64.to_be_bytes()[..], &[0, 1]].concat();
            encode_answer(&mut said, option, answer::INFO, &size_and_flags);
        }
        encode_answer(&mut said, option, answer::ACK, &[]);
        server.write_all(&said).unwrap();
    }
    let mut asked = [0; RequestHeader::bytes(Replies::Structured)];
    server.read_exact(&mut asked).unwrap();
    let mut said = CHUNK_MAGIC.to_be_bytes().to_vec();
    said.extend_from_slice(&reply[..4]);
    // Its cookie.
    said.extend_from_slice(&asked[8..16]);
    said.extend_from_slice(&reply[4..]);
    server.write_all(&said).unwrap();
    client.join().unwrap()
}

#[test]
fn a_reply_without_all_that_was_asked_for_is_an_error() {
    // Flags (done), kind, then the length and what it is of.
    let nothing = [0, 1, 0, 0, 0, 0, 0, 0];
    let mut half = vec![0, 1, 0, 1, 0, 0, 2, 8];
    half.extend_from_slice(&[0; 8 + 512]);
    for reply in [&nothing[..], &half] {
        let error = answered(reply);
        assert!(matches!(error, ClientError::Broken(Broken::Protocol(_))), "{error}");
    }
}

#[test]
fn every_command_works() {
    for structured in [false, true] {
        let server = Server::start(Ram::new(8 << 20, 512), Order::Shuffled);
        let mut client = open(&server.at, "disk", structured).unwrap();
        assert_eq!(client.info().size_bytes, 8 << 20);
        assert_eq!(client.info().sizes.minimum, 1);
        assert!(!client.info().read_only());
        client.write_at(512, &[7; 3 << 20], false).unwrap();
        client.write_at(0, &[8; 1024], true).unwrap();
        client.trim(4096, 4096).unwrap();
        client.write_zeroes(65536, 1 << 20).unwrap();
        client.flush().unwrap();
        let mut all = vec![0xff; 8 << 20];
        client.read_at(0, &mut all).unwrap();
        let mut wanted = vec![0; 8 << 20];
        wanted[512..512 + (3 << 20)].fill(7);
        wanted[..1024].fill(8);
        wanted[4096..8192].fill(0);
        wanted[65536..65536 + (1 << 20)].fill(0);
        assert!(all == wanted);
        let past = client.read_at(8 << 20, &mut [0; 512]);
        assert!(matches!(past, Err(ClientError::Misuse(Misuse::Range))), "{past:?}");
        client.disconnect().unwrap();
        assert!(server.stop().disk == wanted);
    }
}

#[test]
fn an_unknown_export_is_refused_by_name() {
    let server = Server::start(Ram::new(1 << 20, 512), Order::Fifo);
    let error = open(&server.at, "none", true).unwrap_err();
    assert!(error.to_string().contains("\"none\""), "{error}");
    server.stop();
}

#[test]
fn pipelined_requests_are_matched_by_cookie() {
    for structured in [false, true] {
        let server = Server::start(Ram::new(8 << 20, 512), Order::Shuffled);
        let mut client = open(&server.at, "", structured).unwrap();
        let block = |number: u64| [number as u8, (number >> 8) as u8].repeat(2048);
        let mut data = Vec::new();
        let (mut sent, mut heard, mut in_order) = (0, 0, true);
        while heard < 2000 {
            while sent < 2000 && client.outstanding() < 64 {
                let request = Request::new(sent, Ask::Write, sent * 4096, 4096);
                client.submit(Request { fua: sent % 7 == 0, ..request }, &block(sent)).unwrap();
                sent += 1;
            }
            let answer = client.recv(&mut data).unwrap();
            assert_eq!(answer.result, Ok(()));
            in_order &= answer.cookie == heard;
            heard += 1;
        }
        assert!(!in_order, "the server was to answer out of order");
        for number in 0..100 {
            client.submit(Request::new(number, Ask::READ, number * 4096, 4096), &[]).unwrap();
        }
        for _ in 0..100 {
            let answer = client.recv(&mut data).unwrap();
            assert!(data == block(answer.cookie));
        }
        server.stop();
    }
}

#[test]
fn one_connection_sees_what_another_wrote() {
    let server = Server::start(Ram::new(8 << 20, 512), Order::Shuffled);
    let mut clients = (0..8).map(|_| connect(&server)).collect::<Vec<_>>();
    let count = clients.len();
    for round in 0..50 {
        let offset = round as u64 * 8192;
        let content = [round as u8 + 1; 8192];
        clients[round % count].write_at(offset, &content, false).unwrap();
        clients[(round + 1) % count].flush().unwrap();
        for client in &mut clients {
            let mut back = [0; 8192];
            client.read_at(offset, &mut back).unwrap();
            assert_eq!(back, content);
        }
    }
    server.stop();
}

#[test]
fn long_requests_of_many_clients_share_the_least_memory() {
    let mut ram = Ram::new(64 << 20, 512);
    ram.buffers.budget_bytes = BUFFER_BYTES_MIN;
    let server = Server::start(ram, Order::Shuffled);
    let at = server.at.clone();
    let client = |number: u64| {
        let at = at.clone();
        move || {
            let mut client = open(&at, "", number.is_multiple_of(2)).unwrap();
            let mut data = Vec::new();
            let payload = vec![number as u8; 32 << 20];
            for round in 0..3 {
                let offset = number * 512;
                client.submit(Request::new(round, Ask::Write, offset, 32 << 20), &payload).unwrap();
                client.submit(Request::new(round + 100, Ask::READ, offset, 32 << 20), &[]).unwrap();
                client.submit(Request::new(round + 200, Ask::READ, 0, 4096), &[]).unwrap();
                for _ in 0..3 {
                    assert_eq!(client.recv(&mut data).unwrap().result, Ok(()));
                }
            }
        }
    };
    let threads = (0..4).map(|number| std::thread::spawn(client(number))).collect::<Vec<_>>();
    for thread in threads {
        thread.join().unwrap();
    }
    let ram = server.stop();
    assert!(ram.buffers.held_bytes_peak <= BUFFER_BYTES_MIN);
}

#[test]
fn the_first_client_too_many_is_hung_up_on() {
    let dir = tempfile::tempdir().unwrap();
    let at = Listen::Unix(dir.path().join("socket"));
    let options = NbdOptions { connections_max: 2, ..NbdOptions::default() };
    let server = Server::start_at(Ram::new(1 << 20, 512), Order::Fifo, &at, options, dir);
    let (mut first, second) = (connect(&server), connect(&server));
    assert!(hung_up(&mut raw(&server)));
    first.flush().unwrap();
    // Its place is free when it has seen the server's end of the connection.
    second.disconnect().unwrap();
    connect(&server).flush().unwrap();
    server.stop();
}

/// Connections that never say what they want lock nobody out.
#[test]
fn clients_that_have_not_chosen_a_volume_give_way_to_new_ones() {
    let dir = tempfile::tempdir().unwrap();
    let at = Listen::Unix(dir.path().join("socket"));
    let options = NbdOptions { connections_max: 4, ..NbdOptions::default() };
    let server = Server::start_at(Ram::new(1 << 20, 512), Order::Fifo, &at, options, dir);
    let mut first = connect(&server);
    let mut idle: Vec<_> = (0..3).map(|_| raw(&server)).collect();
    // The greeting has come to each, in their order.
    for socket in &mut idle {
        socket.read_exact(&mut [0; 18]).unwrap();
    }
    let mut second = connect(&server);
    assert!(hung_up(&mut idle[0]), "the oldest gives way");
    for socket in &mut idle[1..] {
        socket.set_nonblocking(true).unwrap();
        assert_eq!(socket.read(&mut [0]).unwrap_err().kind(), ErrorKind::WouldBlock, "one place was enough");
        socket.set_nonblocking(false).unwrap();
    }
    let mut others = [connect(&server), connect(&server)];
    assert!(idle.iter_mut().all(hung_up), "all have given way");
    // Clients that have chosen a volume never do.
    assert!(hung_up(&mut raw(&server)));
    for client in [&mut first, &mut second].into_iter().chain(&mut others) {
        client.flush().unwrap();
    }
    let refused = Arc::clone(&server.refused);
    server.stop();
    assert_eq!(refused.load(Ordering::SeqCst), 4, "three have given way, and one was turned away");
}

#[test]
fn a_slow_handshake_ends() {
    let server = Server::start(Ram::new(1 << 20, 512), Order::Fifo);
    let mut good = connect(&server);
    let mut slow = raw(&server);
    slow.write_all(&hello(true)[..9]).unwrap();
    // The greeting has come, so the server has seen it.
    slow.read_exact(&mut [0; 18]).unwrap();
    good.flush().unwrap();
    server.pass(Duration::from_secs(29));
    good.flush().unwrap();
    server.pass(Duration::from_secs(2));
    assert!(hung_up(&mut slow));
    good.flush().unwrap();
    server.stop();
}

#[test]
fn what_a_client_does_not_read_makes_way_and_is_read_again() {
    let mut ram = Ram::new(64 << 20, 512);
    ram.buffers.budget_bytes = BUFFER_BYTES_MIN;
    for (nth, block) in ram.disk.chunks_mut(4096).enumerate() {
        block.fill(nth as u8);
    }
    let disk = ram.disk.clone();
    let server = Server::start(ram, Order::Fifo);
    // Asks for all that it may have, and doesn't read it.
    let mut sitter = raw(&server);
    sitter.write_all(&hello(false)).unwrap();
    sitter.write_all(&request(command::READ, 0, 1, 512, 32 << 20)).unwrap();
    // A reply has begun to come: the buffers are held.
    skip_handshake(&mut sitter);
    let mut start = vec![0; 16 + 1000];
    sitter.read_exact(&mut start).unwrap();
    let mut good = connect(&server);
    good.submit(Request::new(1, Ask::READ, 0, 30 << 20), &[]).unwrap();
    let waiting = std::thread::spawn(move || {
        let answer = good.recv(&mut Vec::new()).unwrap();
        (good, answer)
    });
    // The server's clock runs until it has had enough.
    while !waiting.is_finished() {
        server.pass(Duration::from_millis(5));
        std::thread::yield_now();
    }
    let (mut good, answer) = waiting.join().unwrap();
    assert_eq!(answer.result, Ok(()));
    // The sitter is still there, and gets all of it, though half of it was dropped.
    start.resize(16 + (32 << 20), 0);
    sitter.read_exact(&mut start[16 + 1000..]).unwrap();
    assert!(start[16..] == disk[512..512 + (32 << 20)]);
    good.flush().unwrap();
    server.stop();
}

/// Clients ask for more than there are buffers. The server's clock jumps, so that a client that
/// doesn't read at that moment seems to stand still.
#[test]
fn clients_that_pause_now_and_then_all_get_their_answers() {
    const READS: u64 = 96;
    let mut ram = Ram::new(32 << 20, 512);
    (ram.buffers.budget_bytes, ram.buffers.passing_budget_bytes) = (44 << 20, 8 << 20);
    ram.slow = Some(0..u64::MAX);
    ram.disk.chunks_mut(4096).enumerate().for_each(|(nth, block)| block.fill(nth as u8));
    let disk = ram.disk.clone();
    let server = Server::start(ram, Order::Shuffled);
    std::thread::scope(|scope| {
        for number in 0..4 {
            let (server, disk) = (&server, &disk);
            scope.spawn(move || {
                let mut client = raw(server);
                let ask = |nth: u64| request(command::READ, 0, nth, ((nth * 7 + number) % 32) << 20, 1 << 20);
                client.write_all(&hello(false)).unwrap();
                client.write_all(&(0..32).flat_map(ask).collect::<Vec<_>>()).unwrap();
                skip_handshake(&mut client);
                let mut reply = vec![0; 16 + (1 << 20)];
                for nth in 0..READS {
                    client.read_exact(&mut reply).unwrap();
                    let asked = u64::from_be_bytes(reply[8..16].try_into().unwrap());
                    let from = (((asked * 7 + number) % 32) << 20) as usize;
                    assert!(reply[16..] == disk[from..from + (1 << 20)]);
                    if nth + 32 < READS {
                        client.write_all(&ask(nth + 32)).unwrap();
                    }
                    if nth % 4 == number {
                        server.pass(Duration::from_millis(11));
                    }
                }
            });
        }
    });
    server.stop();
}

#[test]
fn clients_that_vanish_leave_nothing_behind() {
    // All of them at once, if the server comes late to see them leave.
    let dir = tempfile::tempdir().unwrap();
    let at = Listen::Unix(dir.path().join("socket"));
    let options = NbdOptions { connections_max: 256, ..NbdOptions::default() };
    let server = Server::start_at(Ram::new(8 << 20, 512), Order::Shuffled, &at, options, dir);
    for round in 0..200usize {
        let mut socket = raw(&server);
        socket.write_all(&hello(round % 2 == 0)).unwrap();
        let mut bytes = request(command::READ, 0, 1, 0, 1 << 20);
        bytes.extend(request(command::WRITE, 0, 2, 0, 1 << 20));
        bytes.extend(vec![0; 1 << 20]);
        socket.set_nonblocking(true).unwrap();
        // As much as fits in the socket, or less.
        drop(socket.write(&bytes[..(round * 5003) % bytes.len()]));
    }
    connect(&server).flush().unwrap();
    server.stop();
}

#[test]
fn a_half_closed_client_still_gets_its_replies() {
    let server = Server::start(Ram::new(8 << 20, 512), Order::Shuffled);
    let mut socket = raw(&server);
    let mut bytes = hello(false);
    for cookie in 0..20 {
        bytes.extend(request(command::READ, 0, cookie, 0, 65536));
    }
    socket.write_all(&bytes).unwrap();
    socket.shutdown(std::net::Shutdown::Write).unwrap();
    let mut all = Vec::new();
    socket.read_to_end(&mut all).unwrap();
    assert!(all.len() > 20 * (65536 + 16));
    server.stop();
}

#[test]
fn stopping_answers_what_is_in_flight() {
    let server = Server::start(Ram::new(8 << 20, 512), Order::Shuffled);
    let mut client = connect(&server);
    client.write_at(0, &[1; 4096], false).unwrap();
    for cookie in 0..50 {
        client.submit(Request::new(cookie, Ask::READ, 0, 4096), &[]).unwrap();
    }
    let mut data = Vec::new();
    let mut answered = 0;
    assert_eq!(client.recv(&mut data).unwrap().result, Ok(()));
    answered += 1;
    let at = server.at.clone();
    let stopping = std::thread::spawn(move || server.stop());
    // Every reply that comes is whole and right; then the connection ends.
    while let Ok(answer) = client.recv(&mut data) {
        assert_eq!((answer.result, data.as_slice()), (Ok(()), [1; 4096].as_slice()));
        answered += 1;
    }
    assert!(answered >= 1);
    let ram = stopping.join().unwrap();
    assert!(ram.queue.is_empty());
    let Listen::Unix(path) = at else { panic!("not a unix socket") };
    assert!(!path.exists(), "the socket's file is left");
}

#[test]
fn stopping_does_not_wait_for_who_does_not_read() {
    let server = Server::start(Ram::new(64 << 20, 512), Order::Fifo);
    let mut sitter = raw(&server);
    sitter.write_all(&hello(false)).unwrap();
    sitter.write_all(&request(command::READ, 0, 1, 0, 32 << 20)).unwrap();
    sitter.read_exact(&mut [0; 1000]).unwrap();
    server.stop_impatiently();
    assert!(hung_up(&mut sitter));
}

#[test]
fn tcp_on_loopback_works() {
    let dir = tempfile::tempdir().unwrap();
    let at = Listen::parse("tcp:127.0.0.1:0").unwrap();
    let ram = Ram::new(8 << 20, 4096);
    let server = Server::start_at(ram, Order::Shuffled, &at, NbdOptions::default(), dir);
    assert!(server.uri.starts_with("nbd://127.0.0.1:"), "{}", server.uri);
    let mut client = connect(&server);
    client.write_at(4096, &[3; 1 << 20], true).unwrap();
    let mut back = vec![0; 1 << 20];
    client.read_at(4096, &mut back).unwrap();
    assert!(back == [3; 1 << 20]);
    drop(client);
    server.stop();
}

#[test]
fn an_unused_front_end_removes_its_socket() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("socket");
    let nbd = Nbd::bind(&Listen::Unix(path.clone()), NbdOptions::default()).unwrap();
    assert!(path.exists());
    drop(nbd);
    assert!(!path.exists());
}
