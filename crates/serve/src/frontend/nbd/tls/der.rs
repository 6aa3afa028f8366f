// SPDX-License-Identifier: MIT OR Apache-2.0
//! Reads from certificates and keys what messages tell of them: version, dates, names, sizes.
//!
//! Nothing is verified here: rustls does that. The bytes are the operator's own. Messages leave out
//! what can't be read.

/// DER's tags.
const INTEGER: u8 = 0x02;
const OCTET_STRING: u8 = 0x04;
const UTC_TIME: u8 = 0x17;
const GENERALIZED_TIME: u8 = 0x18;
const SEQUENCE: u8 = 0x30;
const VERSION: u8 = 0xa0;
const EXTENSIONS: u8 = 0xa3;
/// 1.2.840.113549.1.1.1, as a whole element.
const RSA: &[u8] = &[0x06, 0x09, 0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x01, 0x01];
/// 2.5.29.17, as a whole element.
const SUBJECT_ALT_NAME: &[u8] = &[0x06, 0x03, 0x55, 0x1d, 0x11];

/// A certificate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Facts {
    /// 1 to 3.
    pub(super) version: u8,
    pub(super) not_before: Moment,
    pub(super) not_after: Moment,
    /// Whether the certificate says for which hosts it is.
    pub(super) has_names: bool,
}

/// A date and a time in UTC; an earlier one is less.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Moment(String);

impl Moment {
    /// The date that is this many seconds after 1970.
    pub(super) fn of_unix(seconds: u64) -> Self {
        let (mut days, second) = (seconds / 86400, seconds % 86400);
        let leap =
            |year: u64| u64::from(year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400)));
        let mut year = 1970;
        while days >= 365 + leap(year) {
            days -= 365 + leap(year);
            year += 1;
        }
        let mut month = 1;
        for length in [31, 28 + leap(year), 31, 30, 31, 30, 31, 31, 30, 31, 30, 31] {
            if days < length {
                break;
            }
            days -= length;
            month += 1;
        }
        let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
        Self(format!("{year:04}-{month:02}-{:02} {hour:02}:{minute:02}:{second:02}", days + 1))
    }

    /// RFC 5280: `YYMMDDhhmmssZ` until 2049, else `YYYYMMDDhhmmssZ`.
    fn of_der(tag: u8, digits: &[u8]) -> Option<Self> {
        let text = std::str::from_utf8(digits).ok()?.strip_suffix('Z')?;
        let text = match tag {
            UTC_TIME if text.starts_with(['0', '1', '2', '3', '4']) => format!("20{text}"),
            UTC_TIME => format!("19{text}"),
            GENERALIZED_TIME => text.to_owned(),
            _ => return None,
        };
        let right = text.len() == 14 && text.bytes().all(|byte| byte.is_ascii_digit());
        let part = |from: usize| &text[from..from + 2];
        right.then(|| {
            let (date, time) = ([part(4), part(6)].join("-"), [part(8), part(10), part(12)].join(":"));
            Self(format!("{}-{date} {time}", &text[..4]))
        })
    }
}

impl std::fmt::Display for Moment {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} UTC", self.0)
    }
}

/// The first element: its tag, what it holds, and what comes after it.
fn element(bytes: &[u8]) -> Option<(u8, &[u8], &[u8])> {
    let (&tag, rest) = bytes.split_first()?;
    let (&short, rest) = rest.split_first()?;
    let (len, rest) = if short < 0x80 {
        (usize::from(short), rest)
    } else {
        let digits = usize::from(short & 0x7f);
        if !(1..=4).contains(&digits) {
            return None;
        }
        let (digits, rest) = rest.split_at_checked(digits)?;
        (digits.iter().fold(0, |len, digit| len << 8 | usize::from(*digit)), rest)
    };
    let (content, rest) = rest.split_at_checked(len)?;
    Some((tag, content, rest))
}

/// Splits bytes into the content of their first element, if it has that tag, and the bytes after
/// it.
fn of(tag: u8, bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    element(bytes).filter(|it| it.0 == tag).map(|it| (it.1, it.2))
}

/// Returns the facts of a certificate.
pub(super) fn facts(certificate: &[u8]) -> Option<Facts> {
    let (certificate, _) = of(SEQUENCE, certificate)?;
    let (mut rest, _) = of(SEQUENCE, certificate)?;
    let mut version = 1;
    if let Some((number, after)) = of(VERSION, rest) {
        version = of(INTEGER, number)?.0.last()?.wrapping_add(1);
        rest = after;
    }
    // Serial number, algorithm, issuer.
    for _ in 0..3 {
        rest = element(rest)?.2;
    }
    let (dates, rest) = of(SEQUENCE, rest)?;
    let (tag, from, to) = element(dates)?;
    let not_before = Moment::of_der(tag, from)?;
    let (tag, to, _) = element(to)?;
    let not_after = Moment::of_der(tag, to)?;
    let mut has_names = false;
    let mut rest = rest;
    while let Some((tag, content, after)) = element(rest) {
        has_names |= tag == EXTENSIONS && content.windows(SUBJECT_ALT_NAME.len()).any(|it| it == SUBJECT_ALT_NAME);
        rest = after;
    }
    Some(Facts { version, not_before, not_after, has_names })
}

/// Bits of an RSA key in PKCS #1.
pub(super) fn rsa_bits(key: &[u8]) -> Option<usize> {
    let (fields, _) = of(SEQUENCE, key)?;
    let (_, fields) = of(INTEGER, fields)?;
    let (modulus, _) = of(INTEGER, fields)?;
    let first = modulus.iter().position(|byte| *byte != 0)?;
    Some((modulus.len() - first) * 8 - modulus[first].leading_zeros() as usize)
}

/// Bits of an RSA key in PKCS #8; `None` if it is no RSA key.
pub(super) fn rsa_bits_in_pkcs8(key: &[u8]) -> Option<usize> {
    let (fields, _) = of(SEQUENCE, key)?;
    let (_, fields) = of(INTEGER, fields)?;
    let (algorithm, fields) = of(SEQUENCE, fields)?;
    let (key, _) = of(OCTET_STRING, fields)?;
    algorithm.starts_with(RSA).then(|| rsa_bits(key)).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_are_dates() {
        for (seconds, text) in [
            (0, "1970-01-01 00:00:00 UTC"),
            (951_868_799, "2000-02-29 23:59:59 UTC"),
            (1_709_251_200, "2024-03-01 00:00:00 UTC"),
            (4_102_444_800, "2100-01-01 00:00:00 UTC"),
        ] {
            assert_eq!(Moment::of_unix(seconds).to_string(), text);
        }
        let of_der = |tag, digits: &str| Moment::of_der(tag, digits.as_bytes()).map(|it| it.to_string());
        assert_eq!(of_der(UTC_TIME, "240301000000Z").as_deref(), Some("2024-03-01 00:00:00 UTC"));
        assert_eq!(of_der(UTC_TIME, "700101000000Z").as_deref(), Some("1970-01-01 00:00:00 UTC"));
        assert_eq!(of_der(GENERALIZED_TIME, "21000101000000Z").as_deref(), Some("2100-01-01 00:00:00 UTC"));
        for wrong in ["", "Z", "240301000000", "2403010000Z", "24030100000\u{e9}Z"] {
            assert_eq!(of_der(UTC_TIME, wrong), None, "{wrong}");
        }
    }

    /// Cut off and changed anywhere: nothing is said, and nothing panics.
    #[test]
    fn damaged_bytes_say_nothing() {
        let key = rcgen::KeyPair::generate().unwrap();
        let whole = rcgen::CertificateParams::new(vec!["localhost".to_owned()]).unwrap().self_signed(&key).unwrap();
        let whole: &[u8] = whole.der();
        assert!(facts(whole).is_some_and(|facts| facts.version == 3 && facts.has_names));
        assert_eq!(rsa_bits_in_pkcs8(key.serialized_der()), None, "it is ECDSA");
        for cut in 0..whole.len() {
            assert_eq!(facts(&whole[..cut]), None, "{cut} bytes");
            for byte in [0, 0x7f, 0x80, 0x84, 0xff] {
                let mut changed = whole.to_vec();
                changed[cut] = byte;
                let _ = (facts(&changed), rsa_bits(&changed), rsa_bits_in_pkcs8(&changed));
            }
        }
    }
}
