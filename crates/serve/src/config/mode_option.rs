// SPDX-License-Identifier: MIT OR Apache-2.0
//! The names of modes, for serde.

use flashfront_engine::Mode;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error};

pub(crate) fn serialize<S: Serializer>(mode: &Option<Mode>, to: S) -> Result<S::Ok, S::Error> {
    mode.map(Mode::name).serialize(to)
}

pub(crate) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Mode>, D::Error> {
    let Some(name) = Option::<String>::deserialize(from)? else {
        return Ok(None);
    };
    let unknown = || {
        let known = Mode::ALL.map(Mode::name).join(", ");
        D::Error::custom(format!("`{name}` is not a mode; there are {known}"))
    };
    Mode::from_name(&name).map(Some).ok_or_else(unknown)
}
