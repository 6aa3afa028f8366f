// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests of the engine in worlds of virtual time: what clients may see, whatever fails.
//!
//! All files are one program, which is linked once, and whose tests run side by side.

mod admission;
mod bytes;
mod capacity;
mod commits;
mod destage;
mod detour;
mod failure;
mod foreseen;
mod hang;
mod invariants;
mod joined;
mod kinds;
mod map;
mod memory;
mod mirror;
mod mirror_clean;
mod neighbours;
mod objects;
mod opening;
mod parts;
mod put_off;
mod ram_front;
mod recovery;
mod refused;
mod shares;
mod sweep;
mod torture;
mod unproven;
mod vacate;
mod volumes;
mod warm;
mod weights;
