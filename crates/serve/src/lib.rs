//! serve
pub mod frontend;
pub mod config;
pub mod control;
pub mod metrics;
pub mod report;
