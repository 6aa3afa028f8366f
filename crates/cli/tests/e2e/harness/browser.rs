// SPDX-License-Identifier: MIT OR Apache-2.0
//! A headless Chromium, driven by WebDriver: JSON over plain HTTP to a chromedriver that ends with
//! us.
//!
//! It waits for what a page says by a promise inside the page, never for time.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use serde_json::{Value, json};

use super::{Place, tool};

/// For one command. Far more than needed: the machine may be busy with other tests.
const LIMIT: Duration = Duration::from_secs(120);
/// What the keyboard's keys are called.
pub(crate) const TAB: char = '\u{e004}';
pub(crate) const LEFT: char = '\u{e012}';
pub(crate) const RIGHT: char = '\u{e014}';

/// A browser with one window.
pub(crate) struct Browser {
    driver: Child,
    port: u16,
    session: String,
    // Its profile.
    _place: Place,
}

impl Browser {
    /// The programs that it needs.
    pub(crate) const PROGRAMS: [&str; 2] = ["chromedriver", "chromium"];

    #[track_caller]
    pub(crate) fn start() -> Self {
        let place = Place::new();
        let mut command: Command = tool("chromedriver");
        command.arg("--port=0").env("HOME", place.dir()).env("TMPDIR", place.dir());
        let spawned = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn();
        let mut driver = spawned.expect("chromedriver can be started");
        let mut lines = BufReader::new(driver.stdout.take().expect("the pipe was asked for")).lines();
        let told = lines.by_ref().map_while(Result::ok).find_map(|line| {
            let (_, port) = line.split_once("started successfully on port ")?;
            port.trim_end_matches('.').parse().ok()
        });
        // What it says later is of no interest, but it must not wait for a reader.
        std::thread::spawn(move || lines.for_each(drop));
        let mut browser =
            Self { driver, port: told.expect("chromedriver names its port"), session: String::new(), _place: place };
        let profile = format!("--user-data-dir={}", browser._place.file("profile").display());
        let args = [
            "--headless=new",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-dev-shm-usage",
            "--hide-scrollbars",
            &profile,
        ];
        let options = json!({ "args": args, "binary": path_of("chromium") });
        let wanted = json!({
            "goog:chromeOptions": options, "goog:loggingPrefs": { "browser": "ALL" }, "timeouts": { "script": 60_000 }
        });
        let made = browser.call("POST", "/session", &json!({ "capabilities": { "alwaysMatch": wanted } }));
        browser.session = made["sessionId"].as_str().expect("a session has a name").to_owned();
        browser
    }

    /// A command of WebDriver, which must succeed; its value.
    #[track_caller]
    fn call(&self, method: &str, path: &str, body: &Value) -> Value {
        let mut stream = TcpStream::connect(("127.0.0.1", self.port)).expect("chromedriver listens");
        stream.set_read_timeout(Some(LIMIT)).expect("a socket has timeouts");
        let body = if method == "POST" { body.to_string() } else { String::new() };
        let head = format!(
            "{method} {path} HTTP/1.1\r\nHost: localhost:{}\r\nConnection: close\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n",
            self.port,
            body.len()
        );
        stream.write_all((head + &body).as_bytes()).expect("chromedriver listens");
        let mut answer = BufReader::new(stream);
        let (mut line, mut length) = (String::new(), 0);
        while answer.read_line(&mut line).expect("chromedriver answers") > 2 {
            if let Some(said) = line.to_ascii_lowercase().strip_prefix("content-length:") {
                length = said.trim().parse().expect("a length");
            }
            line.clear();
        }
        let mut said = vec![0; length];
        answer.read_exact(&mut said).expect("chromedriver answers in full");
        let mut said: Value = serde_json::from_slice(&said).expect("chromedriver speaks JSON");
        let value = said["value"].take();
        assert!(value["error"].is_null(), "{method} {path} {body}: {value}");
        value
    }

    #[track_caller]
    fn post(&self, path: &str, body: &Value) -> Value {
        self.call("POST", &format!("/session/{}{path}", self.session), body)
    }

    /// A command of the browser's own protocol.
    #[track_caller]
    fn own(&self, command: &str, parameters: &Value) -> Value {
        self.post("/goog/cdp/execute", &json!({ "cmd": command, "params": parameters }))
    }

    #[track_caller]
    pub(crate) fn open(&self, address: &str) {
        self.post("/url", &json!({ "url": address }));
    }

    /// The value of an expression in the page.
    #[track_caller]
    pub(crate) fn value(&self, expression: &str) -> Value {
        self.post("/execute/sync", &json!({ "script": format!("return {expression}"), "args": [] }))
    }

    /// Waits until an expression in the page is true. The page is looked at whenever anything in it
    /// changes.
    #[track_caller]
    pub(crate) fn wait_until(&self, expression: &str) {
        let script = format!(
            "const done = arguments[0]; const look = () => {{ if ({expression}) {{ watch.disconnect(); done(true); }} }};
             const watch = new MutationObserver(look);
             watch.observe(document, {{ subtree: true, childList: true, attributes: true, characterData: true }}); look();"
        );
        self.post("/execute/async", &json!({ "script": script, "args": [] }));
    }

    /// Presses and releases a key.
    #[track_caller]
    pub(crate) fn press(&self, key: char) {
        let keys = ["keyDown", "keyUp"].map(|what| json!({ "type": what, "value": key.to_string() }));
        self.post("/actions", &json!({ "actions": [{ "type": "key", "id": "keys", "actions": keys }] }));
    }

    /// A window of that width, for readers who prefer `scheme`: `light` or `dark`.
    #[track_caller]
    pub(crate) fn look(&self, width: u32, height: u32, scheme: &str) {
        let size = json!({ "width": width, "height": height, "deviceScaleFactor": 1, "mobile": false });
        self.own("Emulation.setDeviceMetricsOverride", &size);
        let features = json!([{ "name": "prefers-color-scheme", "value": scheme }]);
        self.own("Emulation.setEmulatedMedia", &json!({ "features": features }));
    }

    /// What the browser's console says that is wrong, since the last time.
    #[track_caller]
    pub(crate) fn complaints(&self) -> Vec<String> {
        let log = self.post("/se/log", &json!({ "type": "browser" }));
        let wrong = log.as_array().expect("a log is a list").iter().filter(|it| it["level"] != "INFO");
        wrong.map(|it| it["message"].to_string()).collect()
    }

    /// A picture of the page, whole or as far as the window shows it, as the bytes of a PNG.
    #[track_caller]
    pub(crate) fn picture(&self, whole: bool) -> Vec<u8> {
        let shot = self.own("Page.captureScreenshot", &json!({ "format": "png", "captureBeyondViewport": whole }));
        base64(shot["data"].as_str().expect("a picture is a text"))
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        if !self.session.is_empty() && !std::thread::panicking() {
            self.call("DELETE", &format!("/session/{}", self.session), &Value::Null);
        }
        // It may have ended this moment.
        self.driver.kill().ok();
        self.driver.wait().ok();
    }
}

/// Where a program is.
fn path_of(program: &str) -> String {
    let found = super::output(tool("sh").args(["-c", &format!("command -v {program}")]));
    String::from_utf8_lossy(&found.stdout).trim().to_owned()
}

/// The bytes that a text in base 64 stands for.
fn base64(text: &str) -> Vec<u8> {
    const DIGITS: &[u8] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let (mut bytes, mut bits, mut held) = (Vec::new(), 0_u32, 0);
    for digit in text.bytes().take_while(|it| *it != b'=') {
        let value = DIGITS.iter().position(|it| *it == digit).expect("a digit of base 64");
        (bits, held) = (bits << 6 | value as u32, held + 6);
        if held >= 8 {
            held -= 8;
            bytes.push((bits >> held) as u8);
        }
    }
    bytes
}
