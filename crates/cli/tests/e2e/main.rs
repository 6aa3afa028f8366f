// SPDX-License-Identifier: MIT OR Apache-2.0
//! End to end: the real binary, driven by real clients, by its contract alone.
//!
//! Nothing here looks inside. A daemon is started, and judged by what fio, qemu, libnbd and file
//! systems get from it. Its exit code, its messages, and the plain files it leaves behind count,
//! too. What this machine can't do is skipped aloud (`skipped: TEST: why`), never silently.

mod advise;
mod bad_format;
mod bad_serve;
mod bad_superblock;
mod bench;
mod bench_acts;
mod bisect;
mod block_device;
mod book;
mod bridges;
mod cache_failure;
mod clients;
mod control;
mod crashed_stale;
mod dashboard;
mod descriptors;
mod disposable;
mod emulate;
mod errors;
mod existing_data;
mod failover;
mod filesystem;
mod fio;
mod fleet;
mod format_discard;
mod fuse;
mod fuse_upgrade;
mod hang;
mod harness;
mod holes;
mod inject;
mod kill;
mod mirror;
mod monitoring;
mod network;
mod object_conditions;
mod object_keys;
mod object_requests;
mod object_servers;
mod object_snapshots;
mod objects;
mod ordered;
mod other_way;
mod power_cut;
mod prefetch;
mod record;
mod refusal;
mod reload;
mod repair;
mod replace;
mod servers;
mod service;
mod shares;
mod shrink;
mod sim_adapt;
mod sim_compare;
mod sim_replay;
mod sim_report;
mod sim_run;
mod stamps;
mod stopping;
mod terminal;
mod tls;
mod told;
mod try_verb;
mod ublk;
mod upgrade;
mod vhost_user_blk;
mod volumes;
mod without_cache;
mod writers;
