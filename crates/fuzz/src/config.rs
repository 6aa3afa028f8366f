// SPDX-License-Identifier: MIT OR Apache-2.0
//! What people write: the config file, the values that are flags too, and job files of fio.
//!
//! Each reader gets the same text. What can be read can be printed, and what is printed reads the
//! same.

use std::fmt::{Debug, Display};
use std::str::FromStr;

use flashfront_device::wrap::Faults;
use flashfront_serve::config::{Age, Config, DirtyLimit, Size};
use flashfront_serve::frontend::nbd::Listen;
use flashfront_sim::load::fio;

use crate::Target;

pub(crate) const TARGET: Target = Target {
    name: "config",
    summary: "the config file in TOML, sizes, spans of time, addresses, orders of faults, job files of fio",
    input_bytes_max: 8 << 10,
    heap_bytes_max: 8 << 20,
    body,
};

fn body(data: &[u8]) {
    let text = &*String::from_utf8_lossy(data);
    if let Ok(mut config) = toml::from_str::<Config>(text) {
        // Else it would ask the name service about hosts.
        config.insecure = true;
        if let Err(error) = config.check() {
            assert!(!error.to_string().is_empty());
        }
        let policy = &config.policy;
        same_again(&policy.dirty_limit);
        same_again(&policy.sequential_bypass);
        same_again(&policy.read_around);
        same_again(&policy.max_dirty_age);
        config.buffer_bytes.iter().for_each(same_again);
        config.listeners.iter().filter_map(|listener| listener.nbd()).for_each(same_address);
    }
    job_file(text);
    for line in text.lines() {
        value::<Size>(line);
        value::<DirtyLimit>(line);
        value::<Age>(line);
        if let Ok(limit) = line.parse::<DirtyLimit>() {
            assert!((1..=1 << 32).contains(&limit.blocks(1 << 32)), "{limit:?} is no limit");
        }
        if let Ok(listen) = Listen::parse(line) {
            same_address(&listen);
        }
        // It has no way back to text.
        let _ = line.parse::<Faults>();
    }
}

/// What is read can be run: on the volume, and to an end.
fn job_file(text: &str) {
    const VOLUME_BYTES: u64 = 1 << 40;
    match fio::read(text, VOLUME_BYTES, &|_| None) {
        Ok(file) => {
            for job in file.phases.iter().flat_map(|phase| &phase.jobs) {
                let end = job.offset_bytes.checked_add(job.span_bytes);
                assert!(end.is_some_and(|end| end <= VOLUME_BYTES), "{job:?}");
                assert!(job.span_bytes >= job.block_bytes * u64::from(job.streams), "{job:?}");
                assert!(job.total_bytes > 0 || job.time_ns > 0, "{job:?}");
            }
        }
        Err(error) => assert!(error.line <= text.lines().count() && !error.what.is_empty(), "{error:?}"),
    }
}

fn value<T: FromStr + Display + Debug + PartialEq>(text: &str)
where
    T::Err: Display,
{
    match text.parse::<T>() {
        Ok(value) => same_again(&value),
        // The message quotes what was written.
        Err(error) => assert!(error.to_string().contains(text.trim()), "{error}"),
    }
}

fn same_again<T: FromStr + Display + Debug + PartialEq>(value: &T) {
    let said = value.to_string();
    let again = said.parse::<T>().unwrap_or_else(|_| panic!("{value:?} is printed as `{said}`, which can't be read"));
    assert_eq!(again, *value, "`{said}`");
}

fn same_address(listen: &Listen) {
    // Of a host the name service decides what is one, before anybody prints it.
    if matches!(listen, Listen::Unix(_)) {
        assert!(!listen.uri("a name", false).contains([' ', '"', '&']), "{listen:?}");
    }
    let again = Listen::parse(&listen.to_string());
    assert_eq!(again.as_ref(), Ok(listen));
}
