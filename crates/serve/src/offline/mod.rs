// SPDX-License-Identifier: MIT OR Apache-2.0
//! What can be done to a cache while no daemon has it.

pub mod detach;
pub mod format;
