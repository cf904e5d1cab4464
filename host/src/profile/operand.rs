//! The operands of statements, as what they stand for: names, numbers, sizes, addresses and masks.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::ops::Range;
use std::str::FromStr;

use ipnet::ipv4_mask_to_prefix;

use super::finding::Mistake;
use super::word::Word;

/// Letters of the name of a device or a link, at most.
const NAME_LETTERS_MAX: usize = 16;

/// MTUs that a profile may have, in bytes. `DEFAULTSIZE` leaves it to the device.
const MTU_BYTES_MIN: u32 = 576;
const MTU_BYTES_MAX: u32 = 65_535;

/// A name in the profile, in capital letters, and where it is.
#[derive(Clone, Debug)]
pub(super) struct Named {
    pub(super) name: String,
    pub(super) span: Range<usize>,
}

pub(super) fn name(word: &Word<'_>) -> Result<Named, Mistake> {
    let name = word.text.to_ascii_uppercase();
    let is_name = name.len() <= NAME_LETTERS_MAX
        && name.bytes().all(|byte| byte.is_ascii_graphic())
        && !matches!(name.as_str(), "" | "=");
    if !is_name {
        let right = format!("must be at most {NAME_LETTERS_MAX} letters, digits and signs");
        return Err(Mistake::at(&word.span, format!("{} is no name", word.shown()), right));
    }
    Ok(Named { name, span: word.span.clone() })
}

/// A number that has digits alone: no sign.
fn unsigned<T: FromStr>(digits: &str) -> Option<T> {
    digits.parse().ok().filter(|_| digits.bytes().all(|byte| byte.is_ascii_digit()))
}

pub(super) fn number(word: &Word<'_>, least: u32, most: u32) -> Result<u32, Mistake> {
    let number = unsigned::<u32>(word.text);
    number.filter(|number| (least..=most).contains(number)).ok_or_else(|| {
        let what = format!("{} is out of its limits, or no number", word.shown());
        Mistake::at(&word.span, what, format!("must be {least} to {most}, in decimal digits"))
    })
}

/// A number of bytes, perhaps with `K` or `M` behind it.
pub(super) fn bytes(word: &Word<'_>, most: u32) -> Result<u32, Mistake> {
    let (digits, unit) = match word.text.as_bytes().last() {
        Some(b'K' | b'k') => (&word.text[..word.text.len() - 1], 1 << 10),
        Some(b'M' | b'm') => (&word.text[..word.text.len() - 1], 1 << 20),
        _ => (word.text, 1),
    };
    let number = unsigned::<u32>(digits).and_then(|number| number.checked_mul(unit));
    number.filter(|bytes| (256..=most).contains(bytes)).ok_or_else(|| {
        let what = format!("{} is out of its limits, or no size", word.shown());
        Mistake::at(&word.span, what, format!("must be 256 to {most}, or a number with K or M"))
    })
}

/// An MTU. None if it is left to the device.
pub(super) fn mtu(word: &Word<'_>) -> Result<Option<u32>, Mistake> {
    match word.text {
        "0" => Ok(None),
        _ if word.is("DEFAULTSIZE") => Ok(None),
        _ => number(word, MTU_BYTES_MIN, MTU_BYTES_MAX).map(Some).map_err(|_| {
            let what = format!("{} is no MTU", word.shown());
            let right = format!("must be {MTU_BYTES_MIN} to {MTU_BYTES_MAX}, or DEFAULTSIZE");
            Mistake::at(&word.span, what, right)
        }),
    }
}

/// The number of a device: hexadecimal, also as `x'7000'` or `0x7000`.
pub(super) fn device_address(word: &Word<'_>) -> Result<u16, Mistake> {
    let lower = word.text.to_ascii_lowercase();
    let bare = lower.strip_prefix("x'").and_then(|rest| rest.strip_suffix('\''));
    let digits = bare.or_else(|| lower.strip_prefix("0x")).unwrap_or(&lower);
    let is_number = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_hexdigit());
    let number = is_number.then(|| u16::from_str_radix(digits, 16).ok()).flatten();
    number.ok_or_else(|| {
        let what = format!("{} is no address of a device", word.shown());
        Mistake::at(&word.span, what, "must be 1 to 4 hexadecimal digits, like 0E20")
    })
}

/// Numbers between points, one to four. Each may have zeros in front: they are decimal all the same.
pub(super) fn octets(text: &str) -> Option<Vec<u8>> {
    let octet = |part: &str| unsigned::<u8>(part).filter(|_| part.len() <= 3);
    let octets: Option<Vec<u8>> = text.split('.').take(5).map(octet).collect();
    octets.filter(|octets| octets.len() <= 4)
}

pub(super) fn padded(octets: &[u8]) -> Ipv4Addr {
    let mut four = [0; 4];
    four[..octets.len()].copy_from_slice(octets);
    Ipv4Addr::from(four)
}

pub(super) fn ip(text: &str) -> Option<IpAddr> {
    match octets(text) {
        Some(octets) if octets.len() == 4 => Some(IpAddr::V4(padded(&octets))),
        _ => text.parse::<Ipv6Addr>().ok().map(IpAddr::V6),
    }
}

/// Returns true if the word can only be meant as an address, a network or a mask: it has points or colons, and digits.
pub(super) fn is_like_address(word: &Word<'_>) -> bool {
    let text = word.text.split('/').next().unwrap_or_default();
    let is_v4 = text.contains('.') && text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'.'));
    is_v4 || text.contains(':')
}

pub(super) fn no_address(word: &Word<'_>) -> Mistake {
    let shown = word.shown();
    if word.text.starts_with('&') {
        let right = "must be replaced by what it stands for";
        return Mistake::at(&word.span, format!("{shown} is a system symbol"), right);
    }
    let right = "must be one like 10.1.0.1 or FD00::1";
    Mistake::at(&word.span, format!("{shown} is no IP address"), right)
}

pub(super) fn address(word: &Word<'_>) -> Result<IpAddr, Mistake> {
    ip(word.text).ok_or_else(|| no_address(word))
}

/// An address, and how many of its bits are those of its network, if that is written.
pub(super) fn address_with_bits(word: &Word<'_>) -> Result<(IpAddr, Option<u8>), Mistake> {
    let Some((text, bits)) = word.text.split_once('/') else {
        return Ok((address(word)?, None));
    };
    let address = ip(text).ok_or_else(|| no_address(word))?;
    let most = if address.is_ipv4() { 32 } else { 128 };
    let number = unsigned::<u8>(bits).filter(|number| (1..=most).contains(number));
    if number.is_none() {
        let what = format!("{} has no number of bits after /", word.shown());
        return Err(Mistake::at(&word.span, what, format!("must be 1 to {most}")));
    }
    Ok((address, number))
}

pub(super) fn mask_bits(word: &Word<'_>) -> Result<u8, Mistake> {
    let mask = octets(word.text).filter(|octets| octets.len() == 4);
    let bits = mask.and_then(|octets| ipv4_mask_to_prefix(padded(&octets)).ok());
    bits.filter(|bits| *bits > 0).ok_or_else(|| {
        let what = format!("{} is no mask", word.shown());
        Mistake::at(&word.span, what, "must be ones and then zeros, like 255.255.255.0")
    })
}
