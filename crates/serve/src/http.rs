// SPDX-License-Identifier: MIT OR Apache-2.0
//! The HTTP port of the daemon: the dashboard, its data, `/metrics` and `/healthz`.
//!
//! A thread of its own with a tokio runtime of one thread serves the port. So no client touches the
//! I/O path beyond one [`Command::Status`]. The port changes nothing: it has GET and HEAD only. At
//! most [`ASKING_MAX`] questions are put to the daemon at a time; the others wait. Connections have
//! bounds of their own (`port`). A browser that was led here by another page gets nothing (`host`).

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use axum::Router;
use axum::extract::{ConnectInfo, RawQuery, Request, State};
use axum::http::{HeaderName, HeaderValue, StatusCode, header};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response as HttpResponse};
use axum::routing::get;
use tokio::sync::{Semaphore, oneshot};

use crate::control::{Caller, Command, Response};
use crate::history::{Query, Refused, SharedHistory};
use crate::metrics::encode;
use crate::report::StatusReport;
use crate::upgrade::{Descriptor, Parcel};

mod host;
mod page;
mod port;
#[cfg(test)]
mod tests;

pub(crate) use port::CONNECTIONS_MAX;
use port::{PATIENCE, Peer, Port};

/// Questions put to the daemon at a time.
pub const ASKING_MAX: usize = 4;
/// The media type of OpenMetrics 1.0, which Prometheus asks for and everybody can read.
const OPENMETRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";
const JSON: &str = "application/json";

/// Headers of every answer: browsers guess no type, keep nothing, and give it to no other page or
/// server.
const ALWAYS: [(HeaderName, &str); 4] = [
    (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    (header::CACHE_CONTROL, "no-store"),
    (header::REFERRER_POLICY, "no-referrer"),
    (HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
];

/// Why there is no HTTP port.
#[derive(Debug, thiserror::Error)]
#[error("http {address}: can't listen: {source}; choose another --http address")]
pub struct HttpError {
    /// The address.
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
    /// A copy of the listening socket, for another program that takes over.
    listener: std::net::TcpListener,
}

impl Http {
    /// Listens at `address`; the caller has made sure that it may
    /// ([`crate::config::Config::check`]).
    ///
    /// # Errors
    /// The port is taken, or the kernel refuses.
    pub fn start(address: SocketAddr, caller: Caller, history: SharedHistory) -> Result<Self, HttpError> {
        Self::with_patience(address, caller, history, PATIENCE)
    }

    /// Starts as [`Http::start`] does, with another patience.
    fn with_patience(
        address: SocketAddr,
        caller: Caller,
        history: SharedHistory,
        patience: Duration,
    ) -> Result<Self, HttpError> {
        let listener = std::net::TcpListener::bind(address).map_err(|source| HttpError { address, source })?;
        Self::serve(listener, address, caller, history, patience)
    }

    /// Serves by the listening socket of another program.
    ///
    /// # Errors
    /// The kernel refuses.
    pub(crate) fn take_over(
        address: SocketAddr,
        caller: Caller,
        history: SharedHistory,
        parcel: &Parcel,
        listener: Descriptor,
    ) -> Result<Self, HttpError> {
        let listener = parcel.descriptor(listener).map_err(|source| HttpError { address, source })?;
        Self::serve(listener.into(), address, caller, history, PATIENCE)
    }

    /// Puts a copy of the listening socket into a parcel.
    pub(crate) fn hand_over(&self, parcel: &mut Parcel) -> io::Result<Descriptor> {
        parcel.put(&self.listener)
    }

    fn serve(
        listener: std::net::TcpListener,
        address: SocketAddr,
        caller: Caller,
        history: SharedHistory,
        patience: Duration,
    ) -> Result<Self, HttpError> {
        let fail = |source| HttpError { address, source };
        let runtime = tokio::runtime::Builder::new_current_thread().enable_io().enable_time().build().map_err(fail)?;
        listener.set_nonblocking(true).map_err(fail)?;
        let copy = listener.try_clone().map_err(fail)?;
        let inside = runtime.enter();
        let listener = tokio::net::TcpListener::from_std(listener).map_err(fail)?;
        drop(inside);
        let address = listener.local_addr().map_err(fail)?;
        let (stop, stopped) = oneshot::channel::<()>();
        let served = Served { caller, history, address, places: Arc::new(Semaphore::new(ASKING_MAX)) };
        let serve = move || {
            runtime.block_on(async move {
                let clients = router(served).into_make_service_with_connect_info::<Peer>();
                tokio::select! {
                    ended = axum::serve(Port::new(listener, patience), clients).into_future() => {
                        if let Err(error) = ended {
                            tracing::error!("http {address}: {error}");
                        }
                    }
                    _ = stopped => {}
                }
            });
            // A client that waits for the pump must not hold up the stop.
            runtime.shutdown_background();
        };
        let thread = std::thread::Builder::new().name("http".to_owned()).spawn(serve).map_err(fail)?;
        Ok(Self { address, stop: Some(stop), thread: Some(thread), listener: copy })
    }

    /// The address at which the port listens; it tells the port if 0 was asked for.
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

/// The data that all requests need.
#[derive(Clone)]
struct Served {
    caller: Caller,
    history: SharedHistory,
    address: SocketAddr,
    places: Arc<Semaphore>,
}

fn router(served: Served) -> Router {
    Router::new()
        .route("/", get(page::page))
        .route("/api/status", get(status))
        .route("/api/history", get(history))
        .route("/metrics", get(metrics))
        .route("/healthz", get(healthz))
        .layer(middleware::from_fn_with_state(served.clone(), around))
        .with_state(served)
}

/// Does what every request needs, before and after it.
async fn around(
    State(served): State<Served>,
    ConnectInfo(peer): ConnectInfo<Peer>,
    request: Request,
    next: Next,
) -> HttpResponse {
    peer.asks();
    let mut response = match host::refused(request.uri(), request.headers(), served.address) {
        Some(why) => (StatusCode::FORBIDDEN, format!("{why}\n")).into_response(),
        None => next.run(request).await,
    };
    let headers = response.headers_mut();
    headers.extend(ALWAYS.map(|(name, value)| (name, HeaderValue::from_static(value))));
    peer.idles();
    response
}

/// Asks the pump without blocking the runtime.
async fn ask(served: Served) -> Result<Box<StatusReport>, String> {
    let Ok(_place) = served.places.acquire().await else {
        return Err("the daemon is stopping".to_owned());
    };
    let caller = served.caller.clone();
    match tokio::task::spawn_blocking(move || caller.call(Command::Status)).await {
        Ok(Response::Status(report)) => Ok(report),
        Ok(Response::Error { message }) => Err(message),
        Ok(
            Response::Done
            | Response::OtherBytes
            | Response::Recording { .. }
            | Response::Upgraded(_)
            | Response::Switched { .. }
            | Response::Resized { .. },
        )
        | Err(_) => Err("no status".to_owned()),
    }
}

/// An answer in JSON.
fn json(status: StatusCode, value: &impl serde::Serialize) -> HttpResponse {
    match serde_json::to_string(value) {
        Ok(text) => (status, [(header::CONTENT_TYPE, JSON)], text + "\n").into_response(),
        Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, format!("{error}\n")).into_response(),
    }
}

/// A refusal in JSON.
fn refuse(status: StatusCode, error: &str) -> HttpResponse {
    json(status, &serde_json::json!({ "error": error }))
}

/// Answers with the text of `status --json`.
async fn status(State(served): State<Served>) -> HttpResponse {
    match ask(served).await {
        Ok(report) => json(StatusCode::OK, &report),
        Err(message) => refuse(StatusCode::SERVICE_UNAVAILABLE, &message),
    }
}

async fn history(State(served): State<Served>, RawQuery(query): RawQuery) -> HttpResponse {
    let query = match Query::parse(query.as_deref().unwrap_or_default()) {
        Ok(query) => query,
        Err(why) => return refuse(StatusCode::BAD_REQUEST, &why.to_string()),
    };
    match served.history.read(&query) {
        Ok(report) => json(StatusCode::OK, &report),
        Err(why) => {
            let code = match why {
                Refused::Early => StatusCode::SERVICE_UNAVAILABLE,
                Refused::Volume(_) => StatusCode::NOT_FOUND,
                Refused::Question(_) => StatusCode::BAD_REQUEST,
            };
            refuse(code, &why.to_string())
        }
    }
}

async fn metrics(State(served): State<Served>) -> HttpResponse {
    match ask(served).await {
        Ok(report) => ([(header::CONTENT_TYPE, OPENMETRICS)], encode(&report)).into_response(),
        Err(message) => (StatusCode::SERVICE_UNAVAILABLE, message + "\n").into_response(),
    }
}

/// The health of a daemon that serves.
fn health(report: &StatusReport) -> (StatusCode, String) {
    let fenced = report.volumes.iter().filter(|it| it.fenced);
    let by = |by: &Option<String>| by.clone().unwrap_or_default();
    let fenced: String =
        fenced.map(|it| format!("volume {}: fenced, {} has opened it\n", it.name, by(&it.fenced_by))).collect();
    if !fenced.is_empty() {
        return (StatusCode::SERVICE_UNAVAILABLE, fenced);
    }
    let away = report.volumes.iter().filter(|it| it.origin_state == "away");
    let away = away.map(|it| format!("volume {}: its origin is away for {} s\n", it.name, it.away_s));
    (StatusCode::OK, std::iter::once("ok\n".to_owned()).chain(away).collect())
}

/// Whether the I/O loop turns, and clients may write. Lost blocks are not ill health: restarting
/// would not help. Nor is an origin that is away: the cache goes on without it. That is told.
async fn healthz(State(served): State<Served>) -> HttpResponse {
    match ask(served).await {
        Ok(report) if report.opening => (StatusCode::SERVICE_UNAVAILABLE, "replaying the cache\n").into_response(),
        Ok(report) => {
            let (code, text) = health(&report);
            (code, text).into_response()
        }
        Err(message) => (StatusCode::SERVICE_UNAVAILABLE, message + "\n").into_response(),
    }
}
