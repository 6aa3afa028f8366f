// SPDX-License-Identifier: MIT OR Apache-2.0
//! The dashboard in a real browser: it loads, says what `status` says, fits, and can be used by
//! keyboard.

use std::path::Path;
use std::process::Command;

use serde_json::Value;

use crate::harness::{Browser, Daemon, LEFT, RIGHT, TAB, Volume, free_port, get, must, skip_without, tool};

/// A served volume and where its dashboard is.
fn served(options: &[&str]) -> (Volume, Daemon, String) {
    let volume = Volume::new(512, 2048);
    must(volume.format().args(["--mode", "writeback"]));
    let port = free_port();
    let daemon =
        Daemon::spawn(volume.serve().args(["--http", &format!("127.0.0.1:{port}")]).args(options), &volume.log);
    daemon.ready();
    (volume, daemon, format!("http://localhost:{port}/"))
}

/// How bright the page's ground is, 0 to 3 * 255.
fn brightness(browser: &Browser) -> u64 {
    let colour = browser.value("getComputedStyle(document.documentElement).backgroundColor");
    let colour = colour.as_str().expect("a colour is a text").to_owned();
    colour.split(|it: char| !it.is_ascii_digit()).filter_map(|it| it.parse::<u64>().ok()).take(3).sum()
}

#[test]
fn the_dashboard_says_what_status_says_and_needs_no_mouse() {
    if skip_without(&Browser::PROGRAMS) {
        return;
    }
    let (volume, daemon, address) = served(&["--read-around=0B"]);
    let mut client = volume.connect();
    let mut bytes = [7; 4096];
    (0..40).for_each(|block| client.write_at(block * 8192, &bytes, false).expect("the volume can be written"));
    client.flush().expect("the volume can be flushed");
    // 40 hits, 23 misses.
    (0..63).for_each(|block| client.read_at(block * 8192, &mut bytes).expect("the volume can be read"));

    let browser = Browser::start();
    browser.look(1280, 900, "light");
    browser.open(&address);
    browser.wait_until("document.body.dataset.shown === '10m'");
    let status = volume.status();
    let [hits, misses] = ["read_hits", "read_misses"].map(|key| status[key].as_f64().expect("a number"));
    let expected = format!("{:.1} %", 100.0 * hits / (hits + misses));
    assert_eq!(browser.value("document.getElementById('hit-ratio').textContent"), expected.as_str(), "{status}");
    assert_eq!(browser.complaints(), [""; 0]);

    // The same figures are a table under each chart, and a picture that says what it is.
    let charts = browser.value("[...document.querySelectorAll('figure')].map(it => [it.querySelector('figcaption').firstChild.data, it.querySelector('svg.chart').getAttribute('aria-label'), it.querySelectorAll('tbody tr').length])");
    let charts = charts.as_array().expect("a list").clone();
    assert!(charts.len() >= 10, "{charts:?}");
    for chart in &charts {
        let title = chart[0].as_str().expect("a title");
        assert!(chart[1].as_str().is_some_and(|label| label.starts_with(title)), "{chart}");
        assert!(chart[2].as_u64() >= Some(1), "{chart}");
    }

    // Nothing is wider than a small screen, in either look.
    let mut grounds = Vec::new();
    for (width, scheme) in [(390, "dark"), (390, "light"), (1280, "dark"), (1280, "light")] {
        browser.look(width, 800, scheme);
        let wide = browser.value("document.documentElement.scrollWidth");
        assert!(wide.as_u64() <= Some(width.into()), "{wide} pixels wide at {width}");
        grounds.push(brightness(&browser));
    }
    assert!(grounds[0] < 150 && grounds[2] < 150 && grounds[1] > 600 && grounds[3] > 600, "{grounds:?}");

    // By keyboard: to the ranges, to the next one, then to the first chart and back in time.
    let focused = |what: &str| browser.value(what) == Value::Bool(true);
    let tab_to = |what: &str| {
        let reached = (0..40).any(|_| {
            browser.press(TAB);
            focused(what)
        });
        assert!(reached, "no number of tabs leads to {what}");
    };
    let label = "document.querySelector('svg.chart').getAttribute('aria-label')";
    // Of a young daemon sixty steps are shown: seconds, then tens of seconds.
    let covers =
        |time: &str| browser.value(label).as_str().is_some_and(|it| it.contains(&format!("over the last {time}:")));
    assert!(covers("1 min"), "{}", browser.value(label));
    tab_to("document.activeElement.name === 'range'");
    browser.press(RIGHT);
    browser.wait_until("document.body.dataset.shown === '1h'");
    assert!(covers("10 min"), "{}", browser.value(label));
    tab_to("document.activeElement.classList.contains('chart')");
    let column = "document.querySelector('figure thead th:nth-child(2)').textContent";
    assert_eq!(browser.value(column), "now");
    browser.press(LEFT);
    assert!(browser.value(column).as_str().is_some_and(|it| it.contains(':')), "the mark says its time");

    // Another page of the same, by its address; and a volume alone.
    browser.open(&format!("{address}#range=24h&volume=data"));
    browser.value("location.reload()");
    browser.wait_until("document.body.dataset.shown === '24h' && document.getElementById('volume').value === 'data'");
    assert_eq!(browser.complaints(), [""; 0]);

    // It is said when the daemon has gone.
    daemon.stop();
    browser.wait_until("document.getElementById('alerts').textContent.includes('No answer from the daemon')");
}

#[test]
fn the_history_tells_what_clients_did() {
    let (volume, daemon, address) = served(&["--read-around=0B"]);
    let port = address.trim_end_matches('/').rsplit(':').next().and_then(|it| it.parse().ok()).expect("a port");
    let mut client = volume.connect();
    let mut bytes = [7; 4096];
    (0..40).for_each(|block| client.write_at(block * 8192, &bytes, false).expect("the volume can be written"));
    (0..63).for_each(|block| client.read_at(block * 8192, &mut bytes).expect("the volume can be read"));
    let names =
        ["hits_per_s", "misses_per_s", "writes_per_s", "read_bytes_per_s", "written_bytes_per_s", "miss_p99_us"];
    for volume in ["", "&volume=data"] {
        let most = |told: &Value, name: &str| {
            let values = told["series"][name].as_array().unwrap_or_else(|| panic!("no series {name}: {told}"));
            values.iter().filter_map(Value::as_f64).fold(0.0, f64::max)
        };
        // A second is told of when it is over.
        let mut told = std::iter::repeat_with(|| -> Value {
            serde_json::from_str(&get(port, &format!("/api/history?range=10m{volume}"))).expect("JSON")
        });
        let whole = |told: &Value| names.iter().all(|name| most(told, name) > 0.0);
        let told = told.find(whole).expect("the history tells of all that clients did");
        assert_eq!(most(&told, "origin_errors_per_s"), 0.0);
        assert_eq!(told["series"]["dirty_bytes"][0], Value::Null, "nothing is told of the time before the start");
        if volume.is_empty() {
            assert_eq!(told["series"]["cached_bytes"][599], 63.0 * 4096.0, "{told}");
        }
    }
    drop(client);
    daemon.stop();
}

/// Makes pictures of a daemon under a load, in the folder that `FLASHFRONT_GALLERY` names; `cargo x
/// gallery` runs it.
#[test]
#[ignore = "makes pictures and tests nothing; `cargo x gallery` runs it"]
fn gallery() {
    let folder = std::env::var_os("FLASHFRONT_GALLERY").expect("FLASHFRONT_GALLERY names a folder");
    let seconds: u64 = std::env::var("FLASHFRONT_GALLERY_SECONDS").map_or(60, |it| it.parse().expect("a number"));
    std::fs::create_dir_all(&folder).expect("the folder can be made");
    let missing = ["fio"].iter().chain(&Browser::PROGRAMS).copied().collect::<Vec<_>>();
    assert!(!skip_without(&missing), "these programs make the pictures");
    let (volume, daemon, address) = served(&["--emulate-origin=wd-re-4tb"]);
    must(&mut load(&volume, seconds));
    // It goes on while the pictures are made.
    let mut going_on = load(&volume, 600).spawn().expect("fio can be started");
    let browser = Browser::start();
    for (name, width, height, whole) in
        [("first", 1280, 778, false), ("wide", 1280, 900, true), ("narrow", 390, 844, true)]
    {
        for scheme in ["light", "dark"] {
            browser.look(width, height, scheme);
            browser.open(&format!("{address}#range=10m"));
            browser.wait_until("document.body.dataset.shown === '10m'");
            let path = Path::new(&folder).join(format!("dashboard-{name}-{scheme}.png"));
            std::fs::write(&path, browser.picture(whole)).expect("the folder is writable");
            println!("{}", path.display());
        }
    }
    drop(browser);
    going_on.kill().expect("our own child can be killed");
    going_on.wait().expect("our own child can be waited for");
    daemon.stop();
}

/// Clients that read and write what they mostly need, and one that reads a long stream.
fn load(volume: &Volume, seconds: u64) -> Command {
    let mut fio = tool("fio");
    fio.args(["--ioengine=nbd", "--time_based", "--size=1500m", "--output=/dev/null"]).current_dir(volume.place.dir());
    fio.arg(format!("--uri={}", volume.uri())).arg(format!("--runtime={seconds}"));
    fio.args(["--name=mixed", "--rw=randrw", "--bs=4k", "--iodepth=4", "--rate_iops=700,300"]);
    fio.args(["--random_distribution=zipf:1.1", "--name=log", "--rw=randwrite", "--bs=4k", "--iodepth=1"]);
    fio.args(["--rate_iops=40", "--fsync=8", "--name=stream", "--rw=read", "--bs=128k", "--rate_iops=20"]);
    fio
}
