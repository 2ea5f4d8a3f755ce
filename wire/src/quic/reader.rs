//! Fields off the front of a frame.

use super::{Fault, varint};

/// The fields that are left.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reader<'a>(pub(super) &'a [u8]);

impl<'a> Reader<'a> {
    pub(super) fn number(&mut self) -> Result<u64, Fault> {
        varint::take(&mut self.0).ok_or(Fault::Truncated)
    }

    /// A number that must fit its type.
    pub(super) fn small<T: TryFrom<u64>>(&mut self) -> Result<T, Fault> {
        let number = self.number()?;
        T::try_from(number).map_err(|_| Fault::Number(number))
    }

    pub(super) fn byte(&mut self) -> Result<u8, Fault> {
        let (first, rest) = self.0.split_first().ok_or(Fault::Truncated)?;
        self.0 = rest;
        Ok(*first)
    }

    /// Eight bytes, big-endian.
    pub(super) fn fixed(&mut self) -> Result<u64, Fault> {
        let (number, rest) = self.0.split_first_chunk().ok_or(Fault::Truncated)?;
        self.0 = rest;
        Ok(u64::from_be_bytes(*number))
    }

    /// A length and that many bytes.
    pub(super) fn bytes(&mut self) -> Result<&'a [u8], Fault> {
        let len = usize::try_from(self.number()?).map_err(|_| Fault::Truncated)?;
        let (bytes, rest) = self.0.split_at_checked(len).ok_or(Fault::Truncated)?;
        self.0 = rest;
        Ok(bytes)
    }

    /// The same, as UTF-8 of at most `most` bytes.
    pub(super) fn text(&mut self, most: usize) -> Result<&'a str, Fault> {
        let bytes = self.bytes()?;
        if bytes.len() > most {
            return Err(Fault::TextTooLong { len: bytes.len(), most });
        }
        core::str::from_utf8(bytes).map_err(|_| Fault::NotUtf8)
    }

    /// What a later version may have added: a tag and bytes, as often as it likes. A field with an
    /// odd tag is optional and passed over; one with an even tag must be understood.
    pub(super) fn end(mut self) -> Result<(), Fault> {
        while !self.0.is_empty() {
            let tag = self.number()?;
            if tag % 2 == 0 {
                return Err(Fault::Required(tag));
            }
            self.bytes()?;
        }
        Ok(())
    }
}
