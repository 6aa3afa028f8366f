// SPDX-License-Identifier: MIT OR Apache-2.0
//! The dashboard: one document with its style and its script inside.
//!
//! The parts are in `page/`. Each answer has a number of its own that the style and the script
//! carry. So a browser runs nothing else, whatever a volume is called.

use std::sync::LazyLock;

use axum::http::{StatusCode, header};
use axum::response::{Html, IntoResponse, Response};

const DOCUMENT: &str = include_str!("page/dashboard.html");
const STYLE: &str = include_str!("page/dashboard.css");
/// The scripts, in the order in which they need each other.
const SCRIPTS: [&str; 4] = [
    include_str!("page/figures.js"),
    include_str!("page/chart.js"),
    include_str!("page/panels.js"),
    include_str!("page/dashboard.js"),
];

/// The document but for its number.
static PAGE: LazyLock<String> =
    LazyLock::new(|| DOCUMENT.replace("/* STYLE */", STYLE).replace("/* SCRIPT */", &SCRIPTS.concat()));

/// Answers with the dashboard.
pub(super) async fn page() -> Response {
    let mut random = [0; 16];
    match rustix::rand::getrandom(&mut random, rustix::rand::GetRandomFlags::empty()) {
        Ok(len) if len == random.len() => {}
        _ => return (StatusCode::SERVICE_UNAVAILABLE, "the kernel gives no random numbers\n").into_response(),
    }
    let nonce: String = random.iter().map(|byte| format!("{byte:02x}")).collect();
    let policy = format!(
        "default-src 'none'; script-src 'nonce-{nonce}'; style-src 'nonce-{nonce}'; connect-src 'self'; img-src data:; \
         base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    );
    ([(header::CONTENT_SECURITY_POLICY, policy)], Html(PAGE.replace("NONCE", &nonce))).into_response()
}
