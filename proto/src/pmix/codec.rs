//! The two forms in which PMIx writes numbers, strings and lists.
//!
//! | | v3 | v41 |
//! |---|---|---|
//! | integers of 16, 32 and 64 bits | big-endian | groups of 7 bits, lowest first; the ninth byte has 8. Signed ones are folded (0, -1, 1, …) |
//! | `size_t`, `int` | preceded by the number of their type | as the integer |
//! | `pid_t` | preceded by the number of its type | the same |
//! | string | length with its end byte, or 0 for none; bytes; end byte | the same |

use super::error::WireError;
use super::{DEPTH_MAX, ITEMS_MAX, KEY_MAX, NAMESPACE_MAX};

/// The form of integers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Codec {
    /// PMIx 3 and later.
    V3,
    /// PMIx 4.1 and later.
    V41,
}

impl Codec {
    /// Returns the codec that a client names in its first message. Later versions than v41 only add data types.
    pub fn named(name: &str) -> Result<Codec, WireError> {
        match name {
            "v3" => Ok(Codec::V3),
            "v41" | "v51" | "v61" => Ok(Codec::V41),
            _ => Err(WireError::Codec(name.chars().take(20).collect())),
        }
    }

    /// Returns its name.
    pub fn name(self) -> &'static str {
        match self {
            Codec::V3 => "v3",
            Codec::V41 => "v41",
        }
    }
}

/// What can be an item of a list.
pub trait Item: Sized {
    /// Writes the item.
    fn write(&self, writer: &mut Writer);
    /// Reads an item.
    fn read(reader: &mut Reader<'_>) -> Result<Self, WireError>;
}

/// Writes a payload.
#[derive(Debug)]
pub struct Writer {
    codec: Codec,
    bytes: Vec<u8>,
}

impl Writer {
    /// Returns an empty payload.
    pub fn new(codec: Codec) -> Writer {
        Writer { codec, bytes: Vec::new() }
    }

    /// Returns the payload.
    pub fn finish(self) -> Vec<u8> {
        self.bytes
    }

    /// Returns its codec.
    pub fn codec(&self) -> Codec {
        self.codec
    }

    /// Writes a list at the top level: its length and its items.
    pub fn list<T: Item>(&mut self, items: &[T]) {
        self.count(items.len());
        items.iter().for_each(|item| item.write(self));
    }

    /// Writes one item at the top level.
    pub fn one<T: Item>(&mut self, item: &T) {
        self.count(1);
        item.write(self);
    }

    /// Writes a length and, if it is not 0, a list: the form of lists in requests.
    pub fn sized_list<T: Item>(&mut self, items: &[T]) {
        self.one_size(items.len());
        if !items.is_empty() {
            self.list(items);
        }
    }

    /// Writes a `size_t` at the top level.
    pub fn one_size(&mut self, size: usize) {
        self.count(1);
        self.describe(SIZE);
        self.uint64(size as u64);
    }

    /// Writes a byte at the top level.
    pub fn one_byte(&mut self, byte: u8) {
        self.count(1);
        self.octet(byte);
    }

    /// Writes a 32-bit number at the top level.
    pub fn one_uint32(&mut self, number: u32) {
        self.count(1);
        self.uint32(number);
    }

    /// Writes a string at the top level.
    pub fn one_text(&mut self, text: Option<&[u8]>) {
        self.count(1);
        self.string(text);
    }

    /// Writes a byte object at the top level.
    pub fn one_object(&mut self, bytes: &[u8]) {
        self.count(1);
        self.object(bytes);
    }

    /// Writes the number of items that follow.
    pub fn count(&mut self, count: usize) {
        // No list that this process composes is longer than a payload.
        self.int32(i32::try_from(count).unwrap_or(i32::MAX));
    }

    /// Appends bytes that are encoded already.
    pub fn raw(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    pub(super) fn octet(&mut self, byte: u8) {
        self.bytes.push(byte);
    }

    pub(super) fn uint16(&mut self, number: u16) {
        match self.codec {
            Codec::V3 => self.raw(&number.to_be_bytes()),
            Codec::V41 => self.groups(number.into()),
        }
    }

    pub(super) fn uint32(&mut self, number: u32) {
        match self.codec {
            Codec::V3 => self.raw(&number.to_be_bytes()),
            Codec::V41 => self.groups(number.into()),
        }
    }

    pub(super) fn uint64(&mut self, number: u64) {
        match self.codec {
            Codec::V3 => self.raw(&number.to_be_bytes()),
            Codec::V41 => self.groups(number),
        }
    }

    pub(super) fn int16(&mut self, number: i16) {
        match self.codec {
            Codec::V3 => self.raw(&number.to_be_bytes()),
            Codec::V41 => self.groups(fold(number.into())),
        }
    }

    pub(super) fn int32(&mut self, number: i32) {
        match self.codec {
            Codec::V3 => self.raw(&number.to_be_bytes()),
            Codec::V41 => self.groups(fold(number.into())),
        }
    }

    pub(super) fn int64(&mut self, number: i64) {
        match self.codec {
            Codec::V3 => self.raw(&number.to_be_bytes()),
            Codec::V41 => self.groups(fold(number)),
        }
    }

    pub(super) fn string(&mut self, text: Option<&[u8]>) {
        let Some(text) = text else { return self.int32(0) };
        self.int32(i32::try_from(text.len() + 1).unwrap_or(i32::MAX));
        self.raw(text);
        self.octet(0);
    }

    pub(super) fn object(&mut self, bytes: &[u8]) {
        self.describe(SIZE);
        self.uint64(bytes.len() as u64);
        self.raw(bytes);
    }

    /// Writes the type of an integer whose width differs between platforms, where the codec requires that: once for a list.
    pub(super) fn describe(&mut self, kind: u16) {
        if let Some(kind) = described(self.codec, kind) {
            self.uint16(kind);
        }
    }

    fn groups(&mut self, mut number: u64) {
        for _ in 0..8 {
            let low = (number & 0x7f) as u8;
            number >>= 7;
            if number == 0 {
                return self.octet(low);
            }
            self.octet(low | 0x80);
        }
        // At most 64 - 8 × 7 bits are left.
        self.octet(number as u8);
    }
}

/// Reads a payload.
#[derive(Debug)]
pub struct Reader<'a> {
    codec: Codec,
    bytes: &'a [u8],
    items_left: u32,
    depth: u8,
}

impl<'a> Reader<'a> {
    /// Reads these bytes.
    pub fn new(codec: Codec, bytes: &'a [u8]) -> Reader<'a> {
        Reader { codec, bytes, items_left: ITEMS_MAX, depth: 0 }
    }

    /// Returns what is left.
    pub fn rest(&self) -> &'a [u8] {
        self.bytes
    }

    /// Returns whether nothing is left.
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// Fails if something is left.
    pub fn end(&self) -> Result<(), WireError> {
        match self.bytes.len() {
            0 => Ok(()),
            left => Err(WireError::Trailing(left)),
        }
    }

    /// Reads one item at the top level.
    pub fn one<T: Item>(&mut self) -> Result<T, WireError> {
        self.expect(1)?;
        T::read(self)
    }

    /// Reads a list that [`Writer::sized_list`] wrote.
    pub fn sized_list<T: Item>(&mut self) -> Result<Vec<T>, WireError> {
        let length = self.one_size()?;
        self.list(length)
    }

    /// Reads a list of this length at the top level; nothing if it is 0.
    pub fn list<T: Item>(&mut self, length: u64) -> Result<Vec<T>, WireError> {
        if length == 0 {
            return Ok(Vec::new());
        }
        self.expect(length)?;
        self.items(length, T::read)
    }

    /// Reads `length` items with `read`.
    pub(super) fn items<T>(
        &mut self,
        length: u64,
        read: impl Fn(&mut Self) -> Result<T, WireError>,
    ) -> Result<Vec<T>, WireError> {
        // Every item has at least one byte, so nothing is allocated for items that are not there.
        if length > self.bytes.len() as u64 {
            return Err(WireError::Short);
        }
        let length = u32::try_from(length).map_err(|_| WireError::Items)?;
        self.items_left = self.items_left.checked_sub(length).ok_or(WireError::Items)?;
        let mut items = Vec::new();
        for _ in 0..length {
            items.push(read(self)?);
        }
        Ok(items)
    }

    /// Reads something nested.
    pub(super) fn nested<T>(&mut self, read: impl FnOnce(&mut Self) -> Result<T, WireError>) -> Result<T, WireError> {
        if self.depth >= DEPTH_MAX {
            return Err(WireError::Deep);
        }
        self.depth += 1;
        let value = read(self);
        self.depth -= 1;
        value
    }

    /// Reads a `size_t` at the top level.
    pub fn one_size(&mut self) -> Result<u64, WireError> {
        self.expect(1)?;
        self.describe(SIZE)?;
        self.uint64()
    }

    /// Reads a byte at the top level.
    pub fn one_byte(&mut self) -> Result<u8, WireError> {
        self.expect(1)?;
        self.octet()
    }

    /// Reads a 32-bit number at the top level.
    pub fn one_uint32(&mut self) -> Result<u32, WireError> {
        self.expect(1)?;
        self.uint32()
    }

    /// Reads a string at the top level.
    pub fn one_text(&mut self) -> Result<Option<Vec<u8>>, WireError> {
        self.expect(1)?;
        self.string()
    }

    /// Reads a byte object at the top level.
    pub fn one_object(&mut self) -> Result<&'a [u8], WireError> {
        self.expect(1)?;
        self.object()
    }

    /// Reads the name of a namespace at the top level; empty if there is none.
    pub fn one_namespace(&mut self) -> Result<String, WireError> {
        self.expect(1)?;
        self.namespace()
    }

    /// Reads a key at the top level.
    pub fn one_key(&mut self) -> Result<String, WireError> {
        self.expect(1)?;
        self.key()
    }

    /// Reads a number of items, which must be this.
    pub(super) fn expect(&mut self, expected: u64) -> Result<(), WireError> {
        let found = i64::from(self.int32()?);
        if u64::try_from(found) == Ok(expected) { Ok(()) } else { Err(WireError::Count { found, expected }) }
    }

    pub(super) fn octet(&mut self) -> Result<u8, WireError> {
        let (byte, rest) = self.bytes.split_first().ok_or(WireError::Short)?;
        self.bytes = rest;
        Ok(*byte)
    }

    pub(super) fn uint16(&mut self) -> Result<u16, WireError> {
        match self.codec {
            Codec::V3 => Ok(u16::from_be_bytes(self.array()?)),
            Codec::V41 => narrow(self.groups()?.into()),
        }
    }

    pub(super) fn uint32(&mut self) -> Result<u32, WireError> {
        match self.codec {
            Codec::V3 => Ok(u32::from_be_bytes(self.array()?)),
            Codec::V41 => narrow(self.groups()?.into()),
        }
    }

    pub(super) fn uint64(&mut self) -> Result<u64, WireError> {
        match self.codec {
            Codec::V3 => Ok(u64::from_be_bytes(self.array()?)),
            Codec::V41 => self.groups(),
        }
    }

    pub(super) fn int16(&mut self) -> Result<i16, WireError> {
        match self.codec {
            Codec::V3 => Ok(i16::from_be_bytes(self.array()?)),
            Codec::V41 => narrow(unfold(self.groups()?).into()),
        }
    }

    pub(super) fn int32(&mut self) -> Result<i32, WireError> {
        match self.codec {
            Codec::V3 => Ok(i32::from_be_bytes(self.array()?)),
            Codec::V41 => narrow(unfold(self.groups()?).into()),
        }
    }

    pub(super) fn int64(&mut self) -> Result<i64, WireError> {
        match self.codec {
            Codec::V3 => Ok(i64::from_be_bytes(self.array()?)),
            Codec::V41 => Ok(unfold(self.groups()?)),
        }
    }

    pub(super) fn string(&mut self) -> Result<Option<Vec<u8>>, WireError> {
        let length = self.int32()?;
        if length == 0 {
            return Ok(None);
        }
        let length = usize::try_from(length).map_err(|_| WireError::OutOfRange(length.into()))?;
        match self.take(length)?.split_last() {
            Some((0, text)) if !text.contains(&0) => Ok(Some(text.to_vec())),
            Some(_) | None => Err(WireError::Unterminated),
        }
    }

    /// Reads the name of a namespace; empty if there is none.
    pub(super) fn namespace(&mut self) -> Result<String, WireError> {
        let name = self.string()?.unwrap_or_default();
        if name.len() > NAMESPACE_MAX {
            return Err(WireError::Name);
        }
        String::from_utf8(name).map_err(|_| WireError::Name)
    }

    pub(super) fn key(&mut self) -> Result<String, WireError> {
        let key = self.string()?.unwrap_or_default();
        if key.len() > KEY_MAX {
            return Err(WireError::Name);
        }
        String::from_utf8(key).map_err(|_| WireError::Name)
    }

    pub(super) fn object(&mut self) -> Result<&'a [u8], WireError> {
        self.describe(SIZE)?;
        let length = self.uint64()?;
        self.take(usize::try_from(length).map_err(|_| WireError::Short)?)
    }

    /// Reads what [`Writer::describe`] wrote.
    pub(super) fn describe(&mut self, kind: u16) -> Result<(), WireError> {
        if let Some(kind) = described(self.codec, kind) {
            let found = self.uint16()?;
            if found != kind {
                return Err(WireError::Described(found));
            }
        }
        Ok(())
    }

    pub(super) fn take(&mut self, length: usize) -> Result<&'a [u8], WireError> {
        let (taken, rest) = self.bytes.split_at_checked(length).ok_or(WireError::Short)?;
        self.bytes = rest;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], WireError> {
        let (taken, rest) = self.bytes.split_first_chunk().ok_or(WireError::Short)?;
        self.bytes = rest;
        Ok(*taken)
    }

    fn groups(&mut self) -> Result<u64, WireError> {
        let mut number = 0;
        for group in 0..8 {
            let byte = self.octet()?;
            number |= u64::from(byte & 0x7f) << (7 * group);
            if byte & 0x80 == 0 {
                return Ok(number);
            }
        }
        Ok(number | u64::from(self.octet()?) << 56)
    }
}

// The types of integers whose width differs between platforms, and of those that have their width here.
const SIZE: u16 = 4;
const PID: u16 = 5;
const INT: u16 = 6;
const INT32: u16 = 9;
const UINT: u16 = 11;
const UINT32: u16 = 14;
const UINT64: u16 = 15;

/// Returns the type by which the codec describes integers of a type whose width differs between platforms.
fn described(codec: Codec, kind: u16) -> Option<u16> {
    match (codec, kind) {
        (Codec::V3, SIZE) => Some(UINT64),
        (Codec::V3, INT | UINT) => Some(INT32),
        (Codec::V3 | Codec::V41, PID) => Some(UINT32),
        (Codec::V3 | Codec::V41, _) => None,
    }
}

fn fold(number: i64) -> u64 {
    ((number << 1) ^ (number >> 63)).cast_unsigned()
}

fn unfold(number: u64) -> i64 {
    (number >> 1).cast_signed() ^ -(number & 1).cast_signed()
}

fn narrow<T: TryFrom<i128>>(number: i128) -> Result<T, WireError> {
    T::try_from(number).map_err(|_| WireError::OutOfRange(number))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn integers_of_v41_have_seven_bits_a_byte_and_the_ninth_byte_has_eight() {
        for (number, bytes) in [
            (0_u64, &[0][..]),
            (127, &[0x7f]),
            (128, &[0x80, 1]),
            (0x4000, &[0x80, 0x80, 1]),
            (u64::MAX, &[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff]),
            (1 << 56, &[0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 1]),
        ] {
            let mut writer = Writer::new(Codec::V41);
            writer.uint64(number);
            assert_eq!(writer.finish(), bytes);
            assert_eq!(Reader::new(Codec::V41, bytes).uint64(), Ok(number));
        }
        for (number, byte) in [(0, 0), (-1, 1), (1, 2), (-64, 127)] {
            let mut writer = Writer::new(Codec::V41);
            writer.int32(number);
            assert_eq!(writer.finish(), [byte]);
            assert_eq!(Reader::new(Codec::V41, &[byte]).int32(), Ok(number));
        }
        assert_eq!(Reader::new(Codec::V41, &[0xff, 0xff, 4]).uint16(), Err(WireError::OutOfRange(0x13fff)));
        assert_eq!(Reader::new(Codec::V41, &[0x80]).uint16(), Err(WireError::Short));
    }

    #[test]
    fn extreme_numbers_survive_both_codecs() {
        for codec in [Codec::V3, Codec::V41] {
            let mut writer = Writer::new(codec);
            for number in [i64::MIN, -1, 0, i64::MAX] {
                writer.int64(number);
            }
            for number in [i32::MIN, i32::MAX] {
                writer.int32(number);
            }
            for number in [i16::MIN, i16::MAX] {
                writer.int16(number);
            }
            let bytes = writer.finish();
            let mut reader = Reader::new(codec, &bytes);
            for number in [i64::MIN, -1, 0, i64::MAX] {
                assert_eq!(reader.int64(), Ok(number));
            }
            assert_eq!((reader.int32(), reader.int32()), (Ok(i32::MIN), Ok(i32::MAX)));
            assert_eq!((reader.int16(), reader.int16()), (Ok(i16::MIN), Ok(i16::MAX)));
            assert_eq!(reader.end(), Ok(()));
        }
    }

    #[test]
    fn strings_have_an_end_byte_and_may_be_absent() {
        let read = |bytes: &[u8]| Reader::new(Codec::V3, bytes).string();
        assert_eq!(read(b"\0\0\0\x03ab\0"), Ok(Some(b"ab".to_vec())));
        assert_eq!(read(b"\0\0\0\x01\0"), Ok(Some(Vec::new())));
        assert_eq!(read(b"\0\0\0\0"), Ok(None));
        assert_eq!(read(b"\0\0\0\x02ab"), Err(WireError::Unterminated));
        assert_eq!(read(b"\0\0\0\x03a\0\0"), Err(WireError::Unterminated));
        assert_eq!(read(b"\0\0\0\x04ab\0"), Err(WireError::Short));
        assert_eq!(read(b"\xff\xff\xff\xff"), Err(WireError::OutOfRange(-1)));
    }

    #[test]
    fn lists_are_not_longer_than_their_bytes() {
        let mut writer = Writer::new(Codec::V41);
        writer.one_size(1 << 40);
        writer.int32(i32::MAX);
        let bytes = writer.finish();
        let list = Reader::new(Codec::V41, &bytes).sized_list::<super::super::Proc>();
        assert_eq!(list, Err(WireError::Count { found: i32::MAX.into(), expected: 1 << 40 }));
    }

    #[test]
    fn only_known_codecs_are_spoken() {
        assert_eq!(Codec::named("v3"), Ok(Codec::V3));
        assert_eq!(Codec::named("v61"), Ok(Codec::V41));
        assert!(Codec::named("v20").is_err());
        assert_eq!(Codec::V41.name(), "v41");
    }
}
