// SPDX-License-Identifier: MIT OR Apache-2.0
//! Names of choices in the file of configuration, for serde.

/// The names of durabilities, for serde.
pub(super) mod durability {
    use flashfront_engine::Durability;
    use serde::{Deserialize, Deserializer, de::Error};

    pub(in crate::config) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Durability, D::Error> {
        let name = String::deserialize(from)?;
        let known = Durability::ALL.map(Durability::name).join(", ");
        Durability::from_name(&name)
            .ok_or_else(|| D::Error::custom(format!("`{name}` is not a durability; there are {known}")))
    }
}

/// The names of destage orders, for serde.
pub(super) mod destage {
    use flashfront_engine::Destage;
    use serde::{Deserialize, Deserializer, de::Error};

    pub(in crate::config) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Destage>, D::Error> {
        let name = String::deserialize(from)?;
        let known = Destage::ALL.map(Destage::name).join(", ");
        Destage::from_name(&name)
            .map(Some)
            .ok_or_else(|| D::Error::custom(format!("`{name}` is not an order of destage; there are {known}")))
    }
}
