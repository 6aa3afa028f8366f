// SPDX-License-Identifier: MIT OR Apache-2.0
//! The status for Prometheus: `/metrics` and `/healthz` on an optional HTTP port.
//!
//! A thread of its own with a tokio runtime of one thread, so that no scrape touches the I/O
//! path beyond one [`Command::Status`]. Names: `flashfront_` + the key of `status --json`, units
//! last, counters with `_total`. At most [`SCRAPES_MAX`] requests are worked on at a time; the rest wait. Connections have
//! bounds of their own (`port`).

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::thread::JoinHandle;
use std::time::Duration;

use axum::Router;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response as HttpResponse};
use axum::routing::get;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::{ConstGauge, Gauge};
use prometheus_client::metrics::info::Info;
use prometheus_client::registry::Registry;
use tokio::sync::{Semaphore, oneshot};

use crate::control::{Caller, Command, Response};
use crate::report::{StatusReport, WhatIfReport};

#[cfg(test)]
mod format;
mod port;
mod volumes;

pub(crate) use port::CONNECTIONS_MAX;
use port::{PATIENCE, Port};

/// Requests worked on at a time.
pub const SCRAPES_MAX: usize = 4;
/// The media type of OpenMetrics 1.0, which Prometheus asks for and everybody can read.
const OPENMETRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Why there are no metrics.
#[derive(Debug, thiserror::Error)]
#[error("http {address}: can't listen: {source}; choose another --http address")]
pub struct HttpError {
    /// Where.
    pub address: SocketAddr,
    /// Why.
    pub source: io::Error,
}

/// A running HTTP port; dropping it closes it.
#[derive(Debug)]
pub struct Http {
    address: SocketAddr,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Http {
    /// Listens at `address`; the caller has made sure that it may ([`crate::config::Config::check`]).
    ///
    /// # Errors
    /// The port is taken, or the kernel refuses.
    pub fn start(address: SocketAddr, caller: Caller) -> Result<Self, HttpError> {
        Self::with_patience(address, caller, PATIENCE)
    }

    /// As [`Http::start`], with another patience.
    fn with_patience(address: SocketAddr, caller: Caller, patience: Duration) -> Result<Self, HttpError> {
        let fail = |source| HttpError { address, source };
        let runtime = tokio::runtime::Builder::new_current_thread().enable_io().enable_time().build().map_err(fail)?;
        let listener = runtime.block_on(tokio::net::TcpListener::bind(address)).map_err(fail)?;
        let address = listener.local_addr().map_err(fail)?;
        let (stop, stopped) = oneshot::channel::<()>();
        let serve = move || {
            runtime.block_on(async move {
                tokio::select! {
                    ended = axum::serve(Port::new(listener, patience), router(caller)).into_future() => {
                        if let Err(error) = ended {
                            tracing::error!("http {address}: {error}");
                        }
                    }
                    _ = stopped => {}
                }
            });
            // A scrape that waits for the pump must not hold up the stop.
            runtime.shutdown_background();
        };
        let thread = std::thread::Builder::new().name("http".to_owned()).spawn(serve).map_err(fail)?;
        Ok(Self { address, stop: Some(stop), thread: Some(thread) })
    }

    /// Where it listens; tells the port if 0 was asked for.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for Http {
    fn drop(&mut self) {
        self.stop.take();
        if let Some(thread) = self.thread.take() {
            // A panic there was reported by the panic hook.
            let _ = thread.join();
        }
    }
}

#[derive(Clone)]
struct Scraped {
    caller: Caller,
    places: Arc<Semaphore>,
}

fn router(caller: Caller) -> Router {
    Router::new()
        .route("/metrics", get(metrics))
        .route("/healthz", get(healthz))
        .with_state(Scraped { caller, places: Arc::new(Semaphore::new(SCRAPES_MAX)) })
}

/// Asks the pump without blocking the runtime.
async fn ask(scraped: Scraped) -> Result<Box<StatusReport>, String> {
    let Ok(_place) = scraped.places.acquire().await else {
        return Err("the daemon is stopping".to_owned());
    };
    let caller = scraped.caller.clone();
    match tokio::task::spawn_blocking(move || caller.call(Command::Status)).await {
        Ok(Response::Status(report)) => Ok(report),
        Ok(Response::Error { message }) => Err(message),
        Ok(Response::Done) | Err(_) => Err("no status".to_owned()),
    }
}

async fn metrics(State(scraped): State<Scraped>) -> HttpResponse {
    match ask(scraped).await {
        Ok(report) => ([(header::CONTENT_TYPE, OPENMETRICS)], encode(&report)).into_response(),
        Err(message) => (StatusCode::SERVICE_UNAVAILABLE, message + "\n").into_response(),
    }
}

/// Whether the I/O loop turns. Lost blocks are not ill health: restarting would not help.
async fn healthz(State(scraped): State<Scraped>) -> HttpResponse {
    match ask(scraped).await {
        Ok(report) if report.opening => (StatusCode::SERVICE_UNAVAILABLE, "replaying the cache\n").into_response(),
        Ok(_) => "ok\n".into_response(),
        Err(message) => (StatusCode::SERVICE_UNAVAILABLE, message + "\n").into_response(),
    }
}

/// The report in the OpenMetrics text format.
#[must_use]
pub fn encode(report: &StatusReport) -> String {
    let mut registry = Registry::with_prefix("flashfront");
    registry.register(
        "build",
        "The running program",
        Info::new([("version", report.version.clone()), ("backend", report.backend.clone())]),
    );
    volumes::register(report, &mut registry);
    hangs(report, &mut registry);
    what_if(report, &mut registry);
    registry.register_collector(Box::new(Numbers(report.clone())));
    let mut text = String::new();
    // Writing to a String does not fail.
    let _ = prometheus_client::encoding::text::encode(&mut text, &registry);
    text
}

/// Which devices hang.
fn hangs(report: &StatusReport, registry: &mut Registry) {
    let cache = Family::<[(&str, String); 1], Gauge>::default();
    for device in &report.cache_devices {
        let ios = device.hang.map_or(0, |hang| hang.ios);
        cache.get_or_create(&[("path", device.path.clone())]).set(signed(ios));
    }
    registry.register("cache_hanging_ios", "I/Os that the cache device did not answer in time", cache);
    let origins = Family::<[(&str, String); 1], Gauge>::default();
    for volume in &report.volumes {
        let ios = volume.origin_hang.map_or(0, |hang| hang.ios);
        origins.get_or_create(&[("volume", volume.name.clone())]).set(signed(ios));
    }
    registry.register("volume_origin_hanging_ios", "I/Os that the volume's origin did not answer in time", origins);
}

/// What would be with other sizes of the cache, as shares and as multiples of what is with the present one.
fn what_if(report: &StatusReport, registry: &mut Registry) {
    type Value = fn(&StatusReport, &WhatIfReport) -> Option<f64>;
    let gauges: [(&str, &str, Value); 5] = [
        ("hit_ratio", "Share of accesses found with a cache of that size", |_, it| it.hit_ratio()),
        ("read_hit_ratio", "Share of blocks read found with a cache of that size", |_, it| it.read_hit_ratio()),
        ("origin_reads_times", "Origin reads with a cache of that size, in those of the present one", |all, it| {
            all.times_present(it, |it| it.origin_read_blocks)
        }),
        ("origin_writes_times", "Origin writes with a cache of that size, in those of the present one", |all, it| {
            all.times_present(it, |it| it.origin_write_blocks)
        }),
        ("flash_writes_times", "Flash writes with a cache of that size, in those of the present one", |all, it| {
            all.times_present(it, |it| it.flash_written_blocks)
        }),
    ];
    for (name, help, value) in gauges {
        let family = Family::<[(&str, String); 1], Gauge<f64, AtomicU64>>::default();
        for it in &report.what_if {
            if let Some(value) = value(report, it) {
                family.get_or_create(&[("size", (f64::from(it.size_percent) / 100.0).to_string())]).set(value);
            }
        }
        registry.register(format!("what_if_{name}"), help, family);
    }
}

fn signed(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}

/// All plain numbers of a report.
#[derive(Debug)]
struct Numbers(StatusReport);

impl Collector for Numbers {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), std::fmt::Error> {
        let report = &self.0;
        for (name, help, value) in report.counters.each() {
            let counter = ConstCounter::new(value);
            counter.encode(encoder.encode_descriptor(name, help, None, counter.metric_type())?)?;
        }
        let gauges = [
            ("blocks_cached", "Blocks in the cache", report.blocks_cached),
            ("blocks_dirty", "Dirty blocks in the cache", report.blocks_dirty),
            ("dirty_limit_blocks", "The most that may be dirty", report.dirty_limit_blocks),
            ("capacity_blocks", "Blocks the log has room for", report.capacity_blocks),
            ("segments_free", "Segments ready to be written", report.segments_free),
            ("segments", "All segments", report.segments),
            ("lanes", "Independent logs of the cache", report.lanes),
            ("lost_blocks", "Blocks whose only copy is corrupt", report.lost_blocks),
            ("draining", "Whether a drain is going on", u64::from(report.draining)),
            ("cache_failed", "Whether the cache device failed", u64::from(report.cache_failed)),
            ("without_cache", "Whether the origins are served without their cache", u64::from(report.without_cache)),
            ("mirror_whole", "Whether both cache devices hold all dirty data", u64::from(report.mirror == "whole")),
            ("mirror_alone", "Whether one of two cache devices is left out", u64::from(report.mirror == "alone")),
            ("mirror_copied_blocks", "Dirty blocks copied to a new mirror", report.mirror_copied_blocks),
            ("mirror_of_blocks", "Dirty blocks that a new mirror needs", report.mirror_of_blocks),
            ("mirror_lacks_blocks", "Dirty blocks that only one of both cache devices has", report.mirror_lacks_blocks),
            ("rss_bytes", "Resident memory of the process, without what it shares with guests", report.rss_bytes),
            ("index_bytes", "Bytes of index, dirty set and ghost", report.index_bytes),
            ("buffer_bytes", "Buffer bytes the engine holds", report.buffer_bytes),
            ("ram_front_bytes", "Bytes of copies in the RAM front", report.ram_front_bytes),
            (
                "flash_writes_per_day_bytes",
                "Bytes that may be written to the cache device in a day, 0 without a limit",
                report.flash_writes_per_day_bytes,
            ),
            (
                "flash_writes_left_bytes",
                "Bytes saved up of these, 0 also in debt",
                u64::try_from(report.flash_writes_left_bytes).unwrap_or(0),
            ),
            ("window_bytes", "Bytes of blocks that wait in RAM to be seen again", report.window_bytes),
            ("shadow_bytes", "Bytes of the models of caches of other sizes", report.shadow_bytes),
            ("request_buffer_bytes", "Buffer bytes held for clients", report.request_buffer_bytes),
            ("requests_in_flight", "Requests not yet answered", report.requests_in_flight),
            ("clients", "Clients connected", report.clients),
            ("threads", "Threads: the engine's, and those that carry clients' bytes", report.threads),
            ("lane_threads", "Threads that do lanes' work, the engine's among them", report.lane_threads),
            ("uptime_seconds", "Time since the daemon was ready", report.uptime_s),
        ];
        for (name, help, value) in gauges {
            let (gauge, help) = (ConstGauge::new(value), format!("{help}."));
            gauge.encode(encoder.encode_descriptor(name, &help, None, gauge.metric_type())?)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::io::{Read, Write};

    use flashfront_engine::shadow::{Totals, WhatIf};
    use flashfront_engine::{Counters, Mode, OriginId, OriginStatus, Status};

    use super::*;
    use crate::report::{Facts, VolumeFacts};

    fn what_if(size_percent: u32, origin_read_blocks: u64) -> WhatIf {
        let totals = Totals { accesses: 800, hits: 200, origin_read_blocks, ..Totals::default() };
        WhatIf { size_percent, totals, filled: true }
    }

    fn report() -> StatusReport {
        let status = Status {
            counters: Counters { read_hits: u64::MAX, writes: 7, ..Counters::default() },
            origins: vec![OriginStatus {
                id: OriginId(0),
                mode: Mode::Writeback,
                size_bytes: 4096,
                blocks_dirty: 5,
                doubtful: false,
            }],
            blocks_dirty: 5,
            what_if: vec![what_if(50, 400), what_if(100, 200)],
            ..Status::default()
        };
        let volume = VolumeFacts { name: "da\"ta".to_owned(), ..VolumeFacts::default() };
        let facts = Facts { volumes: vec![volume], ..Facts::default() };
        StatusReport::new(&status, &facts)
    }

    #[test]
    fn the_text_has_types_values_and_escaped_labels() {
        let text = encode(&report());
        for line in [
            "# TYPE flashfront_read_hits counter",
            "flashfront_read_hits_total 18446744073709551615",
            "flashfront_writes_total 7",
            "flashfront_blocks_dirty 5",
            "flashfront_without_cache 0",
            "flashfront_what_if_hit_ratio{size=\"0.5\"} 0.25",
            "flashfront_what_if_origin_reads_times{size=\"0.5\"} 2.0",
            "flashfront_what_if_origin_reads_times{size=\"1\"} 1.0",
            "flashfront_volume_blocks_dirty{volume=\"da\\\"ta\"} 5",
            "flashfront_volume_mode{volume=\"da\\\"ta\",mode=\"writeback\"} 1",
            "flashfront_volume_mode{volume=\"da\\\"ta\",mode=\"writethrough\"} 0",
            "# EOF",
        ] {
            assert!(text.lines().any(|l| l == line), "{line} is missing from\n{text}");
        }
        // The registry ends its help with a full stop, a collector's comes as it is.
        for line in text.lines().filter(|it| it.starts_with("# HELP")) {
            assert!(line.ends_with('.') && !line.ends_with(".."), "{line}");
        }
    }

    #[test]
    fn no_label_changes_with_the_mode() {
        let mut changed = report();
        changed.volumes[0].mode = "passthrough".to_owned();
        let series = |report| {
            let text = encode(&report);
            let lines = text.lines().filter(|line| !line.starts_with('#'));
            lines.map(|line| line.rsplit_once(' ').unwrap().0.to_owned()).collect::<BTreeSet<_>>()
        };
        let (before, after) = (series(report()), series(changed));
        assert!(before == after, "{:?}", before.symmetric_difference(&after).collect::<Vec<_>>());
    }

    #[test]
    fn every_number_of_the_report_is_there() {
        let text = encode(&report());
        let value = serde_json::to_value(report()).unwrap();
        // Nothing is read or written to flash here: no share and no multiple.
        assert!(!text.contains("what_if_read_hit_ratio{") && !text.contains("what_if_flash_writes_times{"));
        for (key, value) in value.as_object().unwrap() {
            if value.is_number() && !["pid", "uptime_s"].contains(&key.as_str()) {
                assert!(text.contains(&format!("flashfront_{key}")), "{key} is missing");
            }
        }
    }

    /// A port, and the pump behind it.
    fn port(patience: Duration) -> (Http, JoinHandle<()>) {
        let poll = mio::Poll::new().unwrap();
        let waker = Arc::new(mio::Waker::new(poll.registry(), mio::Token(0)).unwrap());
        let (caller, calls) = Caller::new(waker);
        let pump = std::thread::spawn(move || {
            let _poll = poll;
            for call in calls {
                let _ = call.reply.send(Response::Status(Box::new(report())));
            }
        });
        (Http::with_patience(([127, 0, 0, 1], 0).into(), caller, patience).unwrap(), pump)
    }

    #[test]
    fn who_asks_for_nothing_is_left() {
        let (http, _) = port(Duration::from_millis(50));
        let ask = "GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n";
        // Nothing, half of it, or no second time.
        for said in ["", &ask[..20], ask] {
            let mut stream = std::net::TcpStream::connect(http.address()).unwrap();
            // A test that would hang fails instead.
            stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
            // It may have left before it is asked.
            let _ = stream.write_all(said.as_bytes());
            if let Err(error) = stream.read_to_string(&mut String::new()) {
                assert!(matches!(error.kind(), io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe), "{error}");
            }
        }
    }

    #[test]
    fn more_clients_than_places_wait_for_one() {
        let (http, _) = port(PATIENCE);
        let connect = || std::net::TcpStream::connect(http.address()).unwrap();
        let crowd: Vec<_> = (0..3 * port::CONNECTIONS_MAX).map(|_| connect()).collect();
        let mut late = connect();
        write!(late, "GET /healthz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").unwrap();
        drop(crowd);
        let mut answer = String::new();
        late.read_to_string(&mut answer).unwrap();
        assert!(answer.ends_with("ok\n"), "{answer}");
    }

    #[test]
    fn the_port_answers_and_closes() {
        let (http, pump) = port(PATIENCE);
        let get = |path: &str| {
            let mut stream = std::net::TcpStream::connect(http.address()).unwrap();
            write!(stream, "GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").unwrap();
            let mut text = String::new();
            stream.read_to_string(&mut text).unwrap();
            text
        };
        assert!(get("/healthz").ends_with("ok\n"));
        let text = get("/metrics");
        assert!(text.contains("openmetrics-text") && text.contains("flashfront_writes_total 7"));
        assert!(get("/nothing").starts_with("HTTP/1.1 404"));
        let address = http.address();
        drop(http);
        std::net::TcpListener::bind(address).unwrap();
        pump.join().unwrap();
    }
}
