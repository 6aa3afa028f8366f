// SPDX-License-Identifier: MIT OR Apache-2.0
//! NBD inside TLS: what is agreed on before it, certificates that don't fit, clients that mean
//! harm, and everything else as without it.

mod client;
mod files;
mod handed;
mod harm;
mod hold;
mod pki;
mod sessions;
mod speed;
mod start;
