// SPDX-License-Identifier: MIT OR Apache-2.0
//! Faults as a line that a human writes: `eio,op=read,p=0.001; gone,after=5000,for=30s`.
//!
//! Rules are separated by `;`, a rule is a fault and conditions separated by `,`. `seed=N` alone is
//! the seed of all chance. What can't be read is refused with its place, and with what would be
//! right.

use std::fmt;
use std::str::FromStr;

use flashfront_engine::{DeviceError, Op};

use super::{ALWAYS_PPM, Fault, Faults, Rule};

/// How long a timeout, a stall or a hang lasts if nothing is said: what Linux gives a SCSI disk.
const HOLD_NS: u64 = 30_000_000_000;
const FAULTS: &str =
    "eio, nospace, readonly, unsupported, gone, timeout, stall, hang, short, flip, rot, misdirect, lost";
const OPS: [(&str, Op); 5] =
    [("read", Op::Read), ("write", Op::Write), ("flush", Op::Flush), ("discard", Op::Discard), ("zero", Op::Zero)];

/// Why a spec of faults can't be read.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum SpecError {
    /// The order is empty.
    Empty,
    /// There is no such fault.
    Fault(String),
    /// There is no such condition.
    Key {
        /// The rule that it is in.
        rule: String,
        /// The word that was written.
        key: String,
    },
    /// A condition's value can't be read.
    Value {
        /// The condition.
        key: &'static str,
        /// The value that was written.
        value: String,
        /// The values that are right.
        wanted: &'static str,
    },
    /// A condition says nothing for this fault.
    Senseless {
        /// The fault.
        fault: &'static str,
        /// The condition.
        condition: String,
    },
}

impl fmt::Display for SpecError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Empty => write!(f, "no fault is named; write one of: {FAULTS}"),
            Self::Fault(name) => write!(f, "`{name}` is no fault; faults are: {FAULTS}"),
            Self::Key { rule, key } => {
                write!(
                    f,
                    "`{key}` in `{rule}` is no condition; conditions are op=, at=, p=, after=, times=, hold=, for="
                )
            }
            Self::Value { key, value, wanted } => write!(f, "`{key}={value}`: write {wanted}"),
            Self::Senseless { fault, condition } => write!(f, "`{condition}` has no sense with `{fault}`"),
        }
    }
}

impl std::error::Error for SpecError {}

impl FromStr for Faults {
    type Err = SpecError;

    fn from_str(text: &str) -> Result<Self, SpecError> {
        let parts = || text.split(';').map(str::trim).filter(|part| !part.is_empty());
        let mut faults = Self::default();
        for seed in parts().filter_map(|part| part.strip_prefix("seed=")) {
            faults = Self::seeded(number("seed", seed)?);
        }
        for part in parts().filter(|part| !part.starts_with("seed=")) {
            faults.order(rule(part)?);
        }
        if faults.ordered() { Ok(faults) } else { Err(SpecError::Empty) }
    }
}

fn rule(text: &str) -> Result<Rule, SpecError> {
    let mut words = text.split(',').map(str::trim);
    let name = words.next().unwrap_or_default();
    let mut rule = Rule::always(match name {
        "eio" => Fault::Error(DeviceError::Io),
        "nospace" => Fault::Error(DeviceError::NoSpace),
        "readonly" => Fault::Error(DeviceError::ReadOnly),
        "unsupported" => Fault::Error(DeviceError::Unsupported),
        "gone" => Fault::Gone { for_ns: None },
        "timeout" => Fault::Timeout { hold_ns: HOLD_NS },
        "stall" => Fault::Stall { hold_ns: HOLD_NS },
        "hang" => Fault::Hang { hold_ns: HOLD_NS },
        "short" => Fault::Short,
        "flip" => Fault::Flip,
        "rot" => Fault::Rot,
        "misdirect" => Fault::Misdirect,
        "lost" => Fault::Lost,
        other => return Err(SpecError::Fault(other.to_owned())),
    });
    for word in words {
        let fault = rule.fault;
        let senseless = || SpecError::Senseless { fault: fault.name(), condition: word.to_owned() };
        match word.split_once('=') {
            Some(("op", value)) => {
                let wanted = "read, write, flush, discard or zero";
                let op = OPS.iter().find(|(name, _)| *name == value).map(|(_, op)| *op);
                let op = op.ok_or_else(|| wrong("op", value, wanted))?;
                if !fault.can_hit(op) {
                    return Err(senseless());
                }
                rule.op = Some(op);
            }
            Some(("at", value)) => rule.bytes = Some(range(value)?),
            Some(("p", value)) => {
                let wanted = "a probability, from 0.000001 to 1";
                let p: f64 = value.parse().map_err(|_| wrong("p", value, wanted))?;
                if !(0.000_001..=1.0).contains(&p) {
                    return Err(wrong("p", value, wanted));
                }
                rule.chance_ppm = (p * f64::from(ALWAYS_PPM)).round() as u32;
            }
            Some(("after", value)) => rule.after = number("after", value)?,
            Some(("times", value)) => rule.times = number("times", value)?.max(1),
            Some(("hold", value)) => match &mut rule.fault {
                Fault::Timeout { hold_ns } | Fault::Stall { hold_ns } | Fault::Hang { hold_ns } => {
                    *hold_ns = time("hold", value)?
                }
                _ => return Err(senseless()),
            },
            Some(("for", value)) => {
                let ns = time("for", value)?;
                rule.for_ns = Some(ns);
                if let Fault::Gone { for_ns } = &mut rule.fault {
                    *for_ns = Some(ns);
                }
            }
            _ => return Err(SpecError::Key { rule: text.to_owned(), key: word.to_owned() }),
        }
    }
    Ok(rule)
}

fn wrong(key: &'static str, value: &str, wanted: &'static str) -> SpecError {
    SpecError::Value { key, value: value.to_owned(), wanted }
}

fn number(key: &'static str, value: &str) -> Result<u64, SpecError> {
    value.parse().map_err(|_| wrong(key, value, "a whole number"))
}

/// A number and a unit out of this list.
fn with_unit(value: &str, units: &[(&str, u64)]) -> Option<u64> {
    let at = value.find(|c: char| !c.is_ascii_digit()).unwrap_or(value.len());
    let unit = units.iter().find(|(unit, _)| *unit == value[at..].trim())?.1;
    value[..at].parse::<u64>().ok()?.checked_mul(unit)
}

fn time(key: &'static str, value: &str) -> Result<u64, SpecError> {
    const UNITS: [(&str, u64); 5] =
        [("us", 1_000), ("ms", 1_000_000), ("s", 1_000_000_000), ("min", 60_000_000_000), ("h", 3_600_000_000_000)];
    with_unit(value, &UNITS).ok_or_else(|| wrong(key, value, "a time, as in 500us, 20ms, 30s, 5min or 1h"))
}

fn range(value: &str) -> Result<std::ops::Range<u64>, SpecError> {
    const UNITS: [(&str, u64); 9] = [
        ("", 1),
        ("K", 1 << 10),
        ("KiB", 1 << 10),
        ("M", 1 << 20),
        ("MiB", 1 << 20),
        ("G", 1 << 30),
        ("GiB", 1 << 30),
        ("T", 1 << 40),
        ("TiB", 1 << 40),
    ];
    let wanted = "a range of bytes, as in 0..4096, 1MiB..2MiB or 1G..";
    let error = || wrong("at", value, wanted);
    let (start, end) = value.split_once("..").ok_or_else(error)?;
    let start = with_unit(start.trim(), &UNITS).ok_or_else(error)?;
    let end = if end.is_empty() { Some(u64::MAX) } else { with_unit(end.trim(), &UNITS) }.ok_or_else(error)?;
    if start < end { Ok(start..end) } else { Err(error()) }
}
