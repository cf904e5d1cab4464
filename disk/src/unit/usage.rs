//! What a guest is to have of a volume.

use fabric::path::Lendable;

use super::COMMANDS;
use channel::Use;

/// What a guest is to have of a volume.
#[derive(Debug)]
pub struct VolumeUse {
    /// Which volume of the control unit.
    pub volume: usize,
    /// The first cylinder.
    pub first_cylinder: u32,
    /// How many cylinders.
    pub cylinders: u32,
    /// Whether the guest may write.
    pub may_write: bool,
    /// Subchannels: how many programs can run at a time.
    pub subchannels: u16,
    /// Bytes that a program can read into storage of the channel.
    pub result_bytes: u32,
    /// Whether tracks that are read for the guest stay in the control unit's cache.
    pub is_cached: bool,
    /// The cache of the volume, for a guest that has the volume for itself: it reads in place.
    pub cache: Option<Lendable>,
}

impl From<VolumeUse> for Use {
    /// The use as a channel has it. The parameters are the first cylinder and how many there are, each of 32 bits, little-endian.
    fn from(wish: VolumeUse) -> Use {
        let mut parameters = [0; 8];
        parameters[..4].copy_from_slice(&wish.first_cylinder.to_le_bytes());
        parameters[4..].copy_from_slice(&wish.cylinders.to_le_bytes());
        Use {
            device: wish.volume as u32,
            parameters,
            capacity: wish.cylinders,
            may_write: wish.may_write,
            subchannels: wish.subchannels,
            result_bytes: wish.result_bytes,
            is_cached: wish.is_cached,
            cache: wish.cache,
            // Count fields on the volume are those that the guest sees.
            are_gaps_public: wish.first_cylinder == 0,
            commands: COMMANDS,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_are_the_cylinders() {
        let wish = VolumeUse {
            volume: 3,
            first_cylinder: 0x0102_0304,
            cylinders: 0x0506,
            may_write: true,
            subchannels: 8,
            result_bytes: 4096,
            is_cached: true,
            cache: None,
        };
        let found = Use::from(wish);
        assert_eq!(found.parameters, [4, 3, 2, 1, 6, 5, 0, 0]);
        assert_eq!((found.device, found.capacity, found.are_gaps_public), (3, 0x0506, false));
    }
}
