// SPDX-License-Identifier: MIT OR Apache-2.0
use std::io::{Read, Write};
use std::net::TcpStream;

use flashfront_engine::{OriginStatus, Status, Time};

use super::*;
use crate::history::{History, Moment, Traffic};
use crate::report::{Facts, VolumeFacts};

fn report() -> StatusReport {
    let origin = OriginStatus { size_bytes: 4096, blocks_dirty: 5, ..OriginStatus::default() };
    let status = Status { origins: vec![origin], blocks_dirty: 5, ..Status::default() };
    let facts =
        Facts { volumes: vec![VolumeFacts { name: "data".to_owned(), ..VolumeFacts::default() }], ..Facts::default() };
    StatusReport::new(&status, &facts)
}

/// A port, its history, and the pump behind it.
fn port(patience: Duration) -> (Http, SharedHistory, JoinHandle<()>) {
    let poll = mio::Poll::new().unwrap();
    let waker = Arc::new(mio::Waker::new(poll.registry(), mio::Token(0)).unwrap());
    let (caller, calls) = Caller::new(waker);
    let pump = std::thread::spawn(move || {
        let _poll = poll;
        for call in calls {
            let _ = call.reply.send(Response::Status(Box::new(report())));
        }
    });
    let history = SharedHistory::default();
    let http = Http::with_patience(([127, 0, 0, 1], 0).into(), caller, history.clone(), patience).unwrap();
    (http, history, pump)
}

fn connect(http: &Http) -> TcpStream {
    TcpStream::connect(http.address()).unwrap()
}

/// Head and body of an answer.
fn answer(http: &Http, request: &str) -> (String, String) {
    let mut stream = connect(http);
    write!(stream, "{request}\r\nHost: localhost\r\nConnection: close\r\n\r\n").unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    let (head, body) = text.split_once("\r\n\r\n").unwrap();
    (head.to_owned(), body.to_owned())
}

#[test]
fn who_asks_for_nothing_is_left() {
    let (http, ..) = port(Duration::from_millis(50));
    let ask = "GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n";
    // Nothing, half of it, or no second time.
    for said in ["", &ask[..20], ask] {
        let mut stream = connect(&http);
        // A test that would hang fails instead.
        stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        // It may have left before it is asked.
        let _ = stream.write_all(said.as_bytes());
        if let Err(error) = stream.read_to_string(&mut String::new()) {
            assert!(matches!(error.kind(), io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe), "{error}");
        }
    }
}

/// Clients that ask are answered at once, however many others say nothing and however long they
/// stay.
#[test]
fn clients_that_say_nothing_hold_up_nobody() {
    let (http, ..) = port(Duration::from_secs(100_000));
    let _crowd: Vec<_> = (0..3 * CONNECTIONS_MAX).map(|_| connect(&http)).collect();
    assert!(answer(&http, "GET /healthz HTTP/1.1").1.ends_with("ok\n"));
}

/// A client that asks now and then keeps its connection while others that never ask come and go.
#[test]
fn whoever_has_asked_stays_while_others_say_nothing() {
    let (http, ..) = port(Duration::from_secs(100_000));
    let mut asking = connect(&http);
    let mut crowd = Vec::new();
    for _ in 0..5 {
        write!(asking, "GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
        let (mut text, mut byte) = (String::new(), [0]);
        while !text.ends_with("ok\n") {
            asking.read_exact(&mut byte).unwrap();
            text.push(byte[0].into());
        }
        crowd.extend((0..CONNECTIONS_MAX).map(|_| connect(&http)));
        // By now all of them were accepted.
        assert!(answer(&http, "GET /healthz HTTP/1.1").1.ends_with("ok\n"));
    }
}

#[test]
fn the_port_answers_and_closes() {
    let (http, _, pump) = port(PATIENCE);
    assert!(answer(&http, "GET /healthz HTTP/1.1").1.ends_with("ok\n"));
    let (head, body) = answer(&http, "GET /metrics HTTP/1.1");
    assert!(head.contains("openmetrics-text") && body.contains("flashfront_volume_blocks_dirty{volume=\"data\"} 5"));
    let (head, body) = answer(&http, "GET /api/status HTTP/1.1");
    assert!(head.contains("application/json"), "{head}");
    assert_eq!(serde_json::from_str::<StatusReport>(&body).unwrap().blocks_dirty, 5);
    assert!(answer(&http, "GET /nothing HTTP/1.1").0.starts_with("HTTP/1.1 404"));
    let address = http.address();
    drop(http);
    std::net::TcpListener::bind(address).unwrap();
    pump.join().unwrap();
}

#[test]
fn the_history_is_answered_or_it_is_said_why_not() {
    let (http, history, _) = port(PATIENCE);
    let ask = |query: &str| {
        let (head, body) = answer(&http, &format!("GET /api/history{query} HTTP/1.1"));
        (head[9..12].to_owned(), serde_json::from_str::<serde_json::Value>(&body).unwrap())
    };
    assert_eq!(ask("?range=1h").0, "503");
    let moment = |bytes| Moment {
        volumes: vec![Traffic { bytes: [bytes, 0, 0, 0], ..Traffic::default() }],
        ..Moment::default()
    };
    let mut recorded = History::new(&["data".to_owned()], Time(0), &moment(0));
    recorded.record(Time(1_000_000_000), &moment(4096), &[]);
    history.begin(recorded, crate::frontend::desk::Clock::start(), 0);
    let (code, body) = ask("?range=10m");
    assert_eq!((code.as_str(), &body["step_s"]), ("200", &1.into()));
    let read = body["series"]["read_bytes_per_s"].as_array().unwrap();
    assert_eq!((read.len(), &read[598], &read[599]), (600, &serde_json::Value::Null, &4096.0.into()));
    assert_eq!(ask("?range=10m&volume=data").0, "200");
    assert_eq!(ask("?range=10m&volume=other").0, "404");
    for bad in ["?range=7d", "?rang=1h", "?range=%31h"] {
        let (code, body) = ask(bad);
        assert!(code == "400" && body["error"].as_str().unwrap().contains("from 1s to 24h"), "{bad}: {body}");
    }
}

#[test]
fn nothing_can_be_changed_through_the_port() {
    let (http, ..) = port(PATIENCE);
    for path in ["/", "/api/status", "/api/history", "/metrics", "/healthz"] {
        for method in ["POST", "PUT", "DELETE", "PATCH", "OPTIONS"] {
            let (head, _) = answer(&http, &format!("{method} {path} HTTP/1.1"));
            assert!(
                head.starts_with("HTTP/1.1 405") && head.to_lowercase().contains("allow: get"),
                "{method} {path}: {head}"
            );
        }
    }
    let (head, body) = answer(&http, "HEAD / HTTP/1.1");
    assert!(head.starts_with("HTTP/1.1 200") && body.is_empty());
}

#[test]
fn a_page_of_a_stranger_gets_nothing() {
    let (http, ..) = port(PATIENCE);
    for path in ["/", "/api/status", "/api/history", "/metrics"] {
        let mut stream = connect(&http);
        write!(stream, "GET {path} HTTP/1.1\r\nHost: evil.example\r\nConnection: close\r\n\r\n").unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap();
        assert!(text.starts_with("HTTP/1.1 403") && !text.contains("data"), "{path}: {text}");
    }
}

#[test]
fn the_page_runs_its_own_script_and_needs_nothing_else() {
    let (http, ..) = port(PATIENCE);
    let (head, body) = answer(&http, "GET / HTTP/1.1");
    let policy = head.lines().find_map(|line| line.strip_prefix("content-security-policy: ")).expect(&head);
    let nonce = policy.split("script-src 'nonce-").nth(1).unwrap().split('\'').next().unwrap();
    assert!(policy.starts_with("default-src 'none'") && nonce.len() == 32 && !policy.contains("unsafe"), "{policy}");
    assert!(head.contains("x-content-type-options: nosniff") && head.contains("cache-control: no-store"), "{head}");
    assert!(
        body.contains(&format!("<script nonce=\"{nonce}\">")) && body.contains(&format!("<style nonce=\"{nonce}\">"))
    );
    assert!(!body.contains("NONCE") && !body.contains("/* STYLE */") && !body.contains("/* SCRIPT */"));
    for elsewhere in ["src=\"http", "href=\"http", "@import", "url(http", "//cdn"] {
        assert!(!body.contains(elsewhere), "{elsewhere}");
    }
    // Another one each time.
    assert!(!answer(&http, "GET / HTTP/1.1").1.contains(nonce));
}
