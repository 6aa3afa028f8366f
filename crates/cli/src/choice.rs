// SPDX-License-Identifier: MIT OR Apache-2.0
//! Arguments with a fixed list of values, which help and completion show.

use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use flashfront_engine::{Destage, Durability, Mode};

/// A mode by its name.
pub(crate) fn mode() -> impl TypedValueParser<Value = Mode> {
    let value = |mode: Mode| {
        PossibleValue::new(mode.name()).help(match mode {
            Mode::Writeback => "writes go to the cache device, and later to the origin",
            Mode::Writethrough => "writes go to the origin and then to the cache device",
            Mode::Writearound => "writes go to the origin only; reads are cached",
            Mode::Passthrough => "nothing is cached",
        })
    };
    PossibleValuesParser::new(Mode::ALL.map(value))
        .map(|name| Mode::from_name(&name).expect("the parser accepts names of modes only"))
}

/// A durability by its name.
pub(crate) fn durability() -> impl TypedValueParser<Value = Durability> {
    let value = |durability: Durability| {
        PossibleValue::new(durability.name()).help(match durability {
            Durability::Flush => "a write is durable with the next FLUSH, as on a disk with a write cache",
            Durability::Always => "a write is durable when it is acknowledged",
        })
    };
    PossibleValuesParser::new(Durability::ALL.map(value))
        .map(|name| Durability::from_name(&name).expect("the parser accepts names of durabilities only"))
}

/// An order of destage by its name.
pub(crate) fn destage() -> impl TypedValueParser<Value = Destage> {
    let value = |destage: Destage| {
        PossibleValue::new(destage.name()).help(match destage {
            Destage::Free => "as a disk does it fastest; rewritten blocks are written once",
            Destage::Ordered => "in the order of FLUSHes: a lost cache costs the last seconds, not the file system",
        })
    };
    PossibleValuesParser::new(Destage::ALL.map(value))
        .map(|name| Destage::from_name(&name).expect("the parser accepts names of orders only"))
}

/// The name of a policy.
pub(crate) fn policy() -> PossibleValuesParser {
    let all = flashfront_engine::policy::ALL;
    PossibleValuesParser::new(all.iter().map(|spec| PossibleValue::new(spec.name).help(spec.summary)))
}
