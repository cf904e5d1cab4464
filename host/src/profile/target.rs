//! Where a route goes: the beginning of an entry of GATEWAY or BEGINROUTES, in all its forms.

use std::net::{IpAddr, Ipv4Addr};
use std::ops::Range;

use ipnet::{IpNet, Ipv4Net, ipv4_mask_to_prefix};

use super::finding::Mistake;
use super::operand::{self, Named, address_with_bits, is_like_address, mask_bits, octets, padded};
use super::read::Operands;
use super::word::Word;

/// Where a route goes, as the beginning of an entry says it.
pub(super) struct Target<'a> {
    pub(super) span: Range<usize>,
    shown: String,
    /// None of a default route.
    address: Option<IpAddr>,
    bits: Option<u8>,
    /// The mask of the newer form.
    mask: Option<Word<'a>>,
}

/// Reads the beginning of a route: its target, first hop and link.
pub(super) fn destination<'a>(
    operands: &mut Operands<'_, 'a>,
    form: &str,
) -> Result<(Target<'a>, Option<IpAddr>, Named), Mistake> {
    let first = operands.need("network", form)?;
    let is_default = ["DEFAULTNET", "DEFAULT", "DEFAULT6"].iter().any(|name| first.is(name));
    let (address, bits) = match first.text.split_once('/') {
        _ if is_default => (None, None),
        Some(_) => address_with_bits(first).map(|(address, bits)| (Some(address), bits))?,
        // Zeros at the end of a network may be left out.
        None => match octets(first.text) {
            Some(octets) => (Some(IpAddr::V4(padded(&octets))), None),
            None => (Some(operand::address(first)?), None),
        },
    };
    let mut second = operands.need("first hop", form)?;
    let mut mask = None;
    let is_hop = |word: &&Word<'_>| word.text == "=" || is_like_address(word);
    let is_mask = second.is("HOST")
        || (is_like_address(second) && operands.peek().is_some_and(|third| is_hop(&third)));
    if is_mask && !is_default {
        mask = Some(second.clone());
        second = operands.need("first hop", form)?;
    }
    let hop = if second.text == "=" { None } else { Some(operand::address(second)?) };
    let link = operands.need_name("link", form)?;
    let target = Target { span: first.span.clone(), shown: first.shown(), address, bits, mask };
    Ok((target, hop, link))
}

impl Target<'_> {
    /// Returns true if it is all networks.
    pub(super) fn is_default(&self) -> bool {
        self.address.is_none()
    }

    /// Returns true if its mask stands before the first hop.
    pub(super) fn has_mask(&self) -> bool {
        self.bits.is_some() || self.mask.is_some()
    }

    /// The network, from the mask before the first hop, or from the mask and the value behind the MTU.
    pub(super) fn network(
        &self,
        hop: Option<IpAddr>,
        mask: Option<&Word<'_>>,
        value: Option<&Word<'_>>,
    ) -> Result<IpNet, Mistake> {
        let Some(address) = self.address else {
            let Some(hop) = hop else {
                let right = "must have the address of a router as its first hop";
                return Err(Mistake::at(&self.span, "a default route to the link itself", right));
            };
            let all = if hop.is_ipv4() { "0.0.0.0/0" } else { "::/0" };
            return Ok(all.parse().expect("a network"));
        };
        if hop.is_some_and(|hop| hop.is_ipv4() != address.is_ipv4()) {
            let right = "must be of the family of its first hop";
            return Err(Mistake::at(&self.span, "a network of the other family", right));
        }
        let network = match (address, self.bits, &self.mask) {
            (_, Some(bits), _) => IpNet::new(address, bits).ok(),
            (IpAddr::V4(_), None, Some(mask)) if mask.is("HOST") => IpNet::new(address, 32).ok(),
            (IpAddr::V4(_), None, Some(mask)) => IpNet::new(address, mask_bits(mask)?).ok(),
            (IpAddr::V4(address), None, None) => self.classful(address, mask, value)?,
            (IpAddr::V6(_), None, _) => None,
        };
        let Some(network) = network else {
            let what = format!("{} has no mask", self.shown);
            let right = "must have one, like 10.2.0.0/16, 10.2.0.0 255.255.0.0, or HOST";
            return Err(Mistake::at(&self.span, what, right));
        };
        if network != network.trunc() {
            let what = format!("{} has bits that its mask has not", self.shown);
            return Err(Mistake::at(
                &self.span,
                what,
                format!("did you mean {}?", network.trunc()),
            ));
        }
        Ok(network)
    }

    /// The network of the older form: the class of the address gives the first bits. None if there is no mask.
    fn classful(
        &self,
        address: Ipv4Addr,
        mask: Option<&Word<'_>>,
        value: Option<&Word<'_>>,
    ) -> Result<Option<IpNet>, Mistake> {
        let Some(mask) = mask else { return Ok(None) };
        if mask.is("HOST") {
            return Ok(Ipv4Net::new(address, 32).ok().map(IpNet::V4));
        }
        let Some(class) = class_bits(address) else {
            let what = format!("{} is no network of a host", self.shown);
            return Err(Mistake::at(&self.span, what, "must begin with 1 to 223"));
        };
        let four = |word: &Word<'_>| match octets(word.text) {
            Some(octets) if octets.len() == 4 || word.text == "0" => Ok(padded(&octets)),
            _ => Err(Mistake::at(
                &word.span,
                format!("{} is no mask or value of a subnet", word.shown()),
                "must be 0, HOST, or four numbers, like 0.255.255.0 0.2.1.0",
            )),
        };
        let subnet = four(mask)?;
        let value = value.map_or(Ok(Ipv4Addr::UNSPECIFIED), four)?;
        let first = Ipv4Net::new(address, class).expect("bits of a class").netmask();
        let Ok(bits) = ipv4_mask_to_prefix(first | subnet) else {
            let what = format!("{} is no mask of a subnet", mask.shown());
            let right = "must be ones behind those of the network's class, like 0.0.255.0";
            return Err(Mistake::at(&mask.span, what, right));
        };
        Ok(Ipv4Net::new(address | value, bits).ok().map(IpNet::V4))
    }
}

/// How many bits of an address were those of its network before there were masks. None of an address of no host.
pub(super) fn class_bits(address: Ipv4Addr) -> Option<u8> {
    match address.octets()[0] {
        1..=127 => Some(8),
        128..=191 => Some(16),
        192..=223 => Some(24),
        _ => None,
    }
}
