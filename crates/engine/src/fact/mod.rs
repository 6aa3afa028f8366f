// SPDX-License-Identifier: MIT OR Apache-2.0
//! Facts: types, errors and limits that depend on nothing above them.

pub(crate) mod canary;
pub(crate) mod event;
pub(crate) mod extents;
pub(crate) mod io;
pub(crate) mod memory;
pub(crate) mod open_error;
pub(crate) mod options;
pub(crate) mod status;
pub(crate) mod types;
pub(crate) mod volume;
