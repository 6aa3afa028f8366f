// SPDX-License-Identifier: MIT OR Apache-2.0
//! A volume against a plain array, on a store in RAM that answers at once.

mod array;
mod fence;
mod pages;
mod snapshots;
mod store;
mod walk;
