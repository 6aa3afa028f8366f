// SPDX-License-Identifier: MIT OR Apache-2.0
//! The tables of a scenario file as TOML has them; what they have to be beyond that is checked when
//! they become jobs and targets.

use flashfront_serve::config::{Age, DirtyLimit, FlashBudget, Size};
use serde::Deserialize;

/// A scenario file.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct File {
    pub(super) summary: String,
    pub(super) origin: String,
    pub(super) cache: String,
    #[serde(default = "interval")]
    pub(super) interval: Age,
    #[serde(default)]
    pub(super) beside: Vec<Other>,
    #[serde(default)]
    pub(super) engine: EngineTable,
    pub(super) phase: Vec<PhaseTable>,
    #[serde(default)]
    pub(super) target: Vec<TargetTable>,
}

fn interval() -> Age {
    Age(std::time::Duration::from_secs(1))
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Other {
    Origin,
    Cache,
}

/// As in the daemon's configuration; what is not said has its default.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct EngineTable {
    pub(super) mode: Option<ModeName>,
    pub(super) dirty_limit: Option<DirtyLimit>,
    pub(super) dirty_age: Option<Age>,
    pub(super) sequential_bypass: Option<Size>,
    pub(super) policy: Option<String>,
    pub(super) destage: Option<DestageName>,
    pub(super) flash_writes_per_day: Option<FlashBudget>,
}

#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum ModeName {
    Writeback,
    Writethrough,
    Writearound,
    Passthrough,
}

#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum DestageName {
    Free,
    Ordered,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct PhaseTable {
    pub(super) name: String,
    pub(super) idle_before: Option<Age>,
    pub(super) keep_percent: Option<u32>,
    #[serde(default)]
    pub(super) replace: bool,
    #[serde(default)]
    pub(super) beside: bool,
    #[serde(default)]
    pub(super) job: Vec<JobTable>,
    pub(super) bound: Option<Vec<JobTable>>,
}

#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum PatternName {
    Sequential,
    Random,
    Ascending,
    Zipf,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct JobTable {
    pub(super) name: Option<String>,
    pub(super) pattern: PatternName,
    /// The exponent of `zipf`, the mean gap of `ascending`.
    pub(super) parameter: Option<f64>,
    pub(super) reads: u32,
    pub(super) block: Size,
    pub(super) offset: Option<Size>,
    pub(super) span: Size,
    pub(super) total: Option<Size>,
    pub(super) time: Option<Age>,
    pub(super) depth: Option<u32>,
    pub(super) streams: Option<u32>,
    pub(super) writes_per_flush: Option<u32>,
    pub(super) rate: Option<f64>,
    pub(super) on: Option<Age>,
    pub(super) off: Option<Age>,
    pub(super) background: Option<bool>,
    pub(super) seed: Option<u64>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct TargetTable {
    pub(super) name: String,
    pub(super) measure: MeasureName,
    pub(super) phase: Option<String>,
    pub(super) of: Option<String>,
    pub(super) by: Option<String>,
    #[serde(default)]
    pub(super) at_limit: bool,
    pub(super) at_least: Option<f64>,
    pub(super) at_most: Option<f64>,
}

#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum MeasureName {
    Rate,
    RateOfPhase,
    WorstInterval,
    Dirty,
    ReadsOfPhase,
    ReadP99OfPhase,
    ReadP99,
    LongestWriteMs,
    Flushes,
    DeviceFlushes,
    FlashWrites,
    OriginWriteMbPerS,
    CacheWriteMbPerS,
}
