// SPDX-License-Identifier: MIT OR Apache-2.0
//! The engine in worlds of virtual time, the policies on traces, and the models of devices. One
//! program, and not one for each file: they are linked once, and run side by side.

mod admission;
mod adversarial;
mod advise;
mod advised;
mod as_replayed;
mod behind;
mod bytes;
mod calibration;
mod capacity;
mod collection;
mod commits;
mod congested;
mod destage;
mod detour;
mod failure;
mod foreseen;
mod hang;
mod invariants;
mod joined;
mod kinds;
mod loads;
mod map;
mod memory;
mod mirror;
mod mirror_clean;
mod monotone;
mod neighbours;
mod opening;
mod policies;
mod put_off;
mod ram_front;
mod readers;
mod recovery;
mod refused;
mod replay;
mod shadow;
mod sweep;
mod torture;
mod trace;
mod unproven;
