//! Values and the structures that consist of them.
//!
//! [`DataType`] is the table of the types that are decoded. What only tools and schedulers exchange (topologies, fabric
//! coordinates, statistics) is missing, and leads to [`WireError::DataType`].

use super::codec::{Item, Reader, Writer};
use super::error::WireError;

/// A C string: any bytes without zero, or none. Paths and environment variables need not be UTF-8.
pub type Text = Option<Vec<u8>>;

/// Returns a text.
pub fn text(text: &str) -> Text {
    Some(text.as_bytes().to_vec())
}

/// Defines the data types, the values and their forms: `Name(type) = number, as form`. A form is a pair of functions of the same name
/// that writes and reads the value.
macro_rules! data_types {
    ($($(#[$doc:meta])* $name:ident($type:ty) = $number:literal, as $form:ident;)*) => {
        /// The type of a value, by its number on the wire.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub enum DataType {
            /// No value.
            Undefined = 0,
            $($(#[$doc])* $name = $number,)*
        }

        impl DataType {
            /// All types.
            pub const ALL: &[DataType] = &[DataType::Undefined, $(DataType::$name,)*];

            /// Returns the type with this number.
            pub fn of(number: u16) -> Result<DataType, WireError> {
                match number {
                    0 => Ok(DataType::Undefined),
                    $($number => Ok(DataType::$name),)*
                    other => Err(WireError::DataType(other)),
                }
            }
        }

        /// A value with its type.
        #[derive(Debug, Clone, PartialEq, Eq)]
        pub enum Value {
            /// No value.
            Undefined,
            $($(#[$doc])* $name($type),)*
        }

        impl Value {
            /// Returns its type.
            pub fn kind(&self) -> DataType {
                match self {
                    Value::Undefined => DataType::Undefined,
                    $(Value::$name(_) => DataType::$name,)*
                }
            }

            /// Writes the value without its type.
            fn write_body(&self, writer: &mut Writer) {
                match self {
                    Value::Undefined => {}
                    $(Value::$name(value) => write::$form(writer, value),)*
                }
            }

            /// Reads a value of this type.
            fn read_body(kind: DataType, reader: &mut Reader<'_>) -> Result<Value, WireError> {
                Ok(match kind {
                    DataType::Undefined => Value::Undefined,
                    $(DataType::$name => Value::$name(read::$form(reader)?),)*
                })
            }
        }
    };
}

data_types! {
    /// True or false.
    Bool(bool) = 1, as boolean;
    /// A byte.
    Byte(u8) = 2, as octet;
    /// A string.
    String(Text) = 3, as string;
    /// A `size_t`.
    Size(u64) = 4, as uint64;
    /// A process id.
    Pid(u32) = 5, as uint32;
    /// An `int`.
    Int(i32) = 6, as int32;
    /// 8 bits with a sign.
    Int8(i8) = 7, as int8;
    /// 16 bits with a sign.
    Int16(i16) = 8, as int16;
    /// 32 bits with a sign.
    Int32(i32) = 9, as int32;
    /// 64 bits with a sign.
    Int64(i64) = 10, as int64;
    /// An `unsigned int`, which travels as an `int`.
    Uint(u32) = 11, as folded;
    /// 8 bits.
    Uint8(u8) = 12, as octet;
    /// 16 bits.
    Uint16(u16) = 13, as uint16;
    /// 32 bits.
    Uint32(u32) = 14, as uint32;
    /// 64 bits.
    Uint64(u64) = 15, as uint64;
    /// A `float`, in decimal digits.
    Float(Text) = 16, as string;
    /// A `double`, in decimal digits.
    Double(Text) = 17, as string;
    /// Seconds and microseconds.
    Timeval((i64, i64)) = 18, as two;
    /// Seconds since 1970.
    Time(u64) = 19, as uint64;
    /// A status.
    Status(i32) = 20, as int32;
    /// A value within a value.
    Value(Box<Value>) = 21, as boxed;
    /// A process.
    Proc(Proc) = 22, as item;
    /// A program to start.
    App(Box<App>) = 23, as boxed;
    /// An attribute.
    Info(Box<Info>) = 24, as boxed;
    /// A published value.
    Pdata(Box<Pdata>) = 25, as boxed;
    /// Bytes.
    ByteObject(Vec<u8>) = 27, as object;
    /// A key and its value.
    KVal(Box<KVal>) = 28, as boxed;
    /// A [`super::Persistence`].
    Persistence(u8) = 30, as octet;
    /// An address in the sender's memory: only the fact that there is one travels.
    Pointer(u8) = 31, as octet;
    /// A [`super::Scope`].
    Scope(u8) = 32, as octet;
    /// A [`super::Range`].
    Range(u8) = 33, as octet;
    /// The number of a command.
    Command(u8) = 34, as octet;
    /// The flags of an attribute.
    Directives(u32) = 35, as uint32;
    /// The number of a data type.
    DataType(u16) = 36, as uint16;
    /// The state of a process.
    ProcState(u8) = 37, as octet;
    /// A process, its place and its state.
    ProcInfo(Box<ProcInfo>) = 38, as boxed;
    /// Values of one type.
    DataArray(DataArray) = 39, as item;
    /// A rank.
    Rank(u32) = 40, as uint32;
    /// A question.
    Query(Box<Query>) = 41, as boxed;
    /// A string that its sender has compressed.
    CompressedString(Vec<u8>) = 42, as object;
    /// What to do with an allocation.
    AllocDirective(u8) = 43, as octet;
    /// Streams, as bits.
    Channels(u16) = 45, as uint16;
    /// A change of the environment.
    Envar(Box<Envar>) = 46, as boxed;
    /// The state of a job.
    JobState(u8) = 50, as octet;
    /// The state of a network link.
    LinkState(u8) = 51, as octet;
    /// The type of a device.
    DeviceType(u64) = 57, as uint64;
    /// What two processes share, as bits.
    Locality(u16) = 58, as uint16;
    /// Bytes that their sender has compressed.
    CompressedBytes(Vec<u8>) = 59, as object;
    /// The name of a namespace.
    Namespace(Text) = 60, as string;
    /// A buffer.
    DataBuffer(Vec<u8>) = 65, as object;
    /// The medium of a storage.
    StorageMedium(u64) = 66, as uint64;
    /// From where a storage is accessible.
    StorageAccess(u64) = 67, as uint64;
    /// How long a storage keeps its content.
    StoragePersistence(u64) = 68, as uint64;
    /// How a storage may be accessed.
    StorageAccessType(u16) = 69, as uint16;
}

impl DataType {
    /// Returns the type's number.
    pub fn number(self) -> u16 {
        self as u16
    }
}

impl Value {
    /// Returns a string.
    pub fn text(value: impl Into<String>) -> Value {
        Value::String(Some(value.into().into_bytes()))
    }

    /// Returns an array.
    pub fn array(kind: DataType, items: Vec<Value>) -> Value {
        Value::DataArray(DataArray::new(kind, items))
    }

    /// Returns an array of attributes.
    pub fn infos(infos: Vec<Info>) -> Value {
        Value::array(DataType::Info, infos.into_iter().map(|info| Value::Info(Box::new(info))).collect())
    }

    /// Returns the value if it is a flag, as attributes without a value are: then they count as true.
    pub fn as_flag(&self) -> Option<bool> {
        match self {
            Value::Bool(flag) => Some(*flag),
            Value::Undefined => Some(true),
            Value::String(Some(text)) => match &text[..] {
                b"" | b"1" | b"true" | b"t" | b"yes" | b"y" => Some(true),
                b"0" | b"false" | b"f" | b"no" | b"n" => Some(false),
                _ => None,
            },
            other => Some(other.as_number()? != 0),
        }
    }

    /// Returns the value if it is an integer.
    pub fn as_number(&self) -> Option<i64> {
        match self {
            Value::Byte(number)
            | Value::Uint8(number)
            | Value::Scope(number)
            | Value::Range(number)
            | Value::Persistence(number)
            | Value::ProcState(number)
            | Value::JobState(number) => Some((*number).into()),
            Value::Int8(number) => Some((*number).into()),
            Value::Int16(number) => Some((*number).into()),
            Value::Uint16(number) | Value::Locality(number) => Some((*number).into()),
            Value::Int(number) | Value::Int32(number) | Value::Status(number) => Some((*number).into()),
            Value::Uint(number) | Value::Uint32(number) | Value::Rank(number) | Value::Pid(number) => {
                Some((*number).into())
            }
            Value::Int64(number) => Some(*number),
            Value::Uint64(number) | Value::Size(number) | Value::Time(number) => i64::try_from(*number).ok(),
            _ => None,
        }
    }

    /// Returns the value if it is a string.
    pub fn as_text(&self) -> Option<&[u8]> {
        match self {
            Value::String(text) | Value::Namespace(text) => text.as_deref(),
            _ => None,
        }
    }

    /// Returns the attributes if the value is an array of them.
    pub fn as_infos(&self) -> Option<impl Iterator<Item = &Info>> {
        let Value::DataArray(array) = self else { return None };
        (array.kind == DataType::Info).then(|| {
            array.items.iter().filter_map(|item| match item {
                Value::Info(info) => Some(&**info),
                _ => None,
            })
        })
    }

    /// Returns the processes if the value is a process or an array of them.
    pub fn as_procs(&self) -> Option<Vec<Proc>> {
        match self {
            Value::Proc(proc) => Some(vec![proc.clone()]),
            Value::DataArray(array) if array.kind == DataType::Proc => {
                let procs = array.items.iter().filter_map(|item| match item {
                    Value::Proc(proc) => Some(proc.clone()),
                    _ => None,
                });
                Some(procs.collect())
            }
            _ => None,
        }
    }
}

impl Item for Value {
    fn write(&self, writer: &mut Writer) {
        writer.uint16(self.kind().number());
        writer.describe(self.kind().number());
        self.write_body(writer);
    }

    fn read(reader: &mut Reader<'_>) -> Result<Value, WireError> {
        let kind = DataType::of(reader.uint16()?)?;
        reader.describe(kind.number())?;
        reader.nested(|reader| Value::read_body(kind, reader))
    }
}

/// Values of one type.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DataArray {
    kind: DataType,
    items: Vec<Value>,
}

impl DataArray {
    /// Returns an array of the items that have this type.
    pub fn new(kind: DataType, mut items: Vec<Value>) -> DataArray {
        items.retain(|item| item.kind() == kind && kind != DataType::Undefined);
        DataArray { kind, items }
    }

    /// Returns the items' type.
    pub fn kind(&self) -> DataType {
        self.kind
    }

    /// Returns the items.
    pub fn items(&self) -> &[Value] {
        &self.items
    }
}

impl Item for DataArray {
    fn write(&self, writer: &mut Writer) {
        writer.uint16(self.kind.number());
        writer.describe(DataType::Size.number());
        writer.uint64(self.items.len() as u64);
        if !self.items.is_empty() {
            writer.describe(self.kind.number());
            self.items.iter().for_each(|item| item.write_body(writer));
        }
    }

    fn read(reader: &mut Reader<'_>) -> Result<DataArray, WireError> {
        let kind = DataType::of(reader.uint16()?)?;
        reader.describe(DataType::Size.number())?;
        let length = reader.uint64()?;
        if length == 0 || kind == DataType::Undefined {
            return Ok(DataArray { kind, items: Vec::new() });
        }
        if kind == DataType::Pointer {
            // PMIx writes one byte for all of them.
            return Err(WireError::DataType(kind.number()));
        }
        reader.describe(kind.number())?;
        let items = reader.nested(|reader| reader.items(length, |reader| Value::read_body(kind, reader)))?;
        Ok(DataArray { kind, items })
    }
}

/// A process, or several if its rank is one of [`super::rank`].
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Proc {
    /// The name of its namespace, which is its job.
    pub namespace: String,
    /// Its rank there.
    pub rank: u32,
}

impl Proc {
    /// Returns a process.
    pub fn new(namespace: &str, rank: u32) -> Proc {
        Proc { namespace: namespace.to_owned(), rank }
    }
}

impl Item for Proc {
    fn write(&self, writer: &mut Writer) {
        writer.string(Some(self.namespace.as_bytes()));
        writer.uint32(self.rank);
    }

    fn read(reader: &mut Reader<'_>) -> Result<Proc, WireError> {
        Ok(Proc { namespace: reader.namespace()?, rank: reader.uint32()? })
    }
}

/// An attribute of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Info {
    /// Its name.
    pub key: String,
    /// Bit 0: it must be honoured. Bit 3: it qualifies another one.
    pub flags: u32,
    /// Its value.
    pub value: Value,
}

impl Info {
    /// The attribute must be honoured.
    pub const REQUIRED: u32 = 1;
    /// The attribute qualifies another one.
    pub const QUALIFIER: u32 = 8;

    /// Returns an attribute without flags.
    pub fn new(key: &str, value: Value) -> Info {
        Info { key: key.to_owned(), flags: 0, value }
    }

    /// Returns the value of an attribute in a list; the last one counts.
    pub fn find<'a>(infos: &'a [Info], key: &str) -> Option<&'a Value> {
        infos.iter().rev().find(|info| info.key == key).map(|info| &info.value)
    }

    /// Returns whether a list has this attribute as a flag that is set.
    pub fn is_set(infos: &[Info], key: &str) -> bool {
        Info::find(infos, key).and_then(Value::as_flag).unwrap_or(false)
    }
}

impl Item for Info {
    fn write(&self, writer: &mut Writer) {
        writer.string(Some(self.key.as_bytes()));
        writer.uint32(self.flags);
        self.value.write(writer);
    }

    fn read(reader: &mut Reader<'_>) -> Result<Info, WireError> {
        Ok(Info { key: reader.key()?, flags: reader.uint32()?, value: Value::read(reader)? })
    }
}

/// A key and its value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KVal {
    /// The key.
    pub key: String,
    /// The value.
    pub value: Value,
}

impl KVal {
    /// Returns a key with its value.
    pub fn new(key: &str, value: Value) -> KVal {
        KVal { key: key.to_owned(), value }
    }
}

impl Item for KVal {
    fn write(&self, writer: &mut Writer) {
        writer.string(Some(self.key.as_bytes()));
        self.value.write(writer);
    }

    fn read(reader: &mut Reader<'_>) -> Result<KVal, WireError> {
        Ok(KVal { key: reader.key()?, value: Value::read(reader)? })
    }
}

/// A published value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pdata {
    /// The process that published it.
    pub proc: Proc,
    /// The key.
    pub key: String,
    /// The value.
    pub value: Value,
}

impl Item for Pdata {
    fn write(&self, writer: &mut Writer) {
        self.proc.write(writer);
        writer.string(Some(self.key.as_bytes()));
        self.value.write(writer);
    }

    fn read(reader: &mut Reader<'_>) -> Result<Pdata, WireError> {
        Ok(Pdata { proc: Proc::read(reader)?, key: reader.key()?, value: Value::read(reader)? })
    }
}

/// A program to start.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct App {
    /// The program.
    pub command: Text,
    /// Its arguments, the first of which is its name.
    pub argv: Vec<Vec<u8>>,
    /// Variables for its environment, as `NAME=VALUE`.
    pub env: Vec<Vec<u8>>,
    /// Its working directory.
    pub cwd: Text,
    /// The number of processes.
    pub processes: i32,
    /// Its attributes.
    pub infos: Vec<Info>,
}

impl Item for App {
    fn write(&self, writer: &mut Writer) {
        writer.string(self.command.as_deref());
        writer.describe(DataType::Int.number());
        writer.count(self.argv.len());
        self.argv.iter().for_each(|word| writer.string(Some(word)));
        writer.count(self.env.len());
        self.env.iter().for_each(|var| writer.string(Some(var)));
        writer.string(self.cwd.as_deref());
        writer.describe(DataType::Int.number());
        writer.int32(self.processes);
        writer.describe(DataType::Size.number());
        writer.uint64(self.infos.len() as u64);
        self.infos.iter().for_each(|info| info.write(writer));
    }

    fn read(reader: &mut Reader<'_>) -> Result<App, WireError> {
        let command = reader.string()?;
        reader.describe(DataType::Int.number())?;
        let argv = strings(reader)?;
        let env = strings(reader)?;
        let cwd = reader.string()?;
        reader.describe(DataType::Int.number())?;
        let processes = reader.int32()?;
        reader.describe(DataType::Size.number())?;
        let length = reader.uint64()?;
        let infos = reader.items(length, Info::read)?;
        Ok(App { command, argv, env, cwd, processes, infos })
    }
}

/// Reads a number of strings and the strings.
fn strings(reader: &mut Reader<'_>) -> Result<Vec<Vec<u8>>, WireError> {
    let length = reader.int32()?;
    let length = u64::try_from(length).map_err(|_| WireError::OutOfRange(length.into()))?;
    reader.items(length, |reader| Ok(reader.string()?.unwrap_or_default()))
}

/// A change of the environment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Envar {
    /// The variable's name.
    pub name: Text,
    /// What to set it to, or to add.
    pub value: Text,
    /// What separates it from the rest if it is added.
    pub separator: u8,
}

impl Item for Envar {
    fn write(&self, writer: &mut Writer) {
        writer.string(self.name.as_deref());
        writer.string(self.value.as_deref());
        writer.octet(self.separator);
    }

    fn read(reader: &mut Reader<'_>) -> Result<Envar, WireError> {
        Ok(Envar { name: reader.string()?, value: reader.string()?, separator: reader.octet()? })
    }
}

/// A question to the server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Query {
    /// What is asked.
    pub keys: Vec<Vec<u8>>,
    /// About what.
    pub qualifiers: Vec<Info>,
}

impl Item for Query {
    fn write(&self, writer: &mut Writer) {
        writer.count(self.keys.len());
        self.keys.iter().for_each(|key| writer.string(Some(key)));
        writer.describe(DataType::Size.number());
        writer.uint64(self.qualifiers.len() as u64);
        self.qualifiers.iter().for_each(|info| info.write(writer));
    }

    fn read(reader: &mut Reader<'_>) -> Result<Query, WireError> {
        let keys = strings(reader)?;
        reader.describe(DataType::Size.number())?;
        let length = reader.uint64()?;
        Ok(Query { keys, qualifiers: reader.items(length, Info::read)? })
    }
}

/// A process, its place and its state.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProcInfo {
    /// The process.
    pub proc: Proc,
    /// The name of its node.
    pub hostname: Text,
    /// Its program.
    pub executable: Text,
    /// Its process id.
    pub pid: u32,
    /// Its state.
    pub state: u8,
}

impl Item for ProcInfo {
    fn write(&self, writer: &mut Writer) {
        self.proc.write(writer);
        writer.string(self.hostname.as_deref());
        writer.string(self.executable.as_deref());
        writer.describe(DataType::Pid.number());
        writer.uint32(self.pid);
        writer.octet(self.state);
    }

    fn read(reader: &mut Reader<'_>) -> Result<ProcInfo, WireError> {
        let (proc, hostname, executable) = (Proc::read(reader)?, reader.string()?, reader.string()?);
        reader.describe(DataType::Pid.number())?;
        Ok(ProcInfo { proc, hostname, executable, pid: reader.uint32()?, state: reader.octet()? })
    }
}

/// The forms of values, written.
mod write {
    use super::super::codec::{Item, Writer};

    macro_rules! plain {
        ($($form:ident($type:ty);)*) => { $(
            pub(super) fn $form(writer: &mut Writer, value: &$type) {
                writer.$form(*value);
            }
        )* };
    }

    plain! {
        octet(u8); uint16(u16); uint32(u32); uint64(u64); int16(i16); int32(i32); int64(i64);
    }

    pub(super) fn boolean(writer: &mut Writer, value: &bool) {
        writer.octet((*value).into());
    }

    pub(super) fn int8(writer: &mut Writer, value: &i8) {
        writer.octet(value.cast_unsigned());
    }

    pub(super) fn folded(writer: &mut Writer, value: &u32) {
        writer.int32(value.cast_signed());
    }

    pub(super) fn string(writer: &mut Writer, value: &super::Text) {
        writer.string(value.as_deref());
    }

    pub(super) fn two(writer: &mut Writer, value: &(i64, i64)) {
        writer.int64(value.0);
        writer.int64(value.1);
    }

    pub(super) fn object(writer: &mut Writer, value: &[u8]) {
        writer.object(value);
    }

    pub(super) fn item<T: Item>(writer: &mut Writer, value: &T) {
        value.write(writer);
    }

    #[expect(clippy::borrowed_box, reason = "called with the value of a variant, whatever its type")]
    pub(super) fn boxed<T: Item>(writer: &mut Writer, value: &Box<T>) {
        value.write(writer);
    }
}

/// The forms of values, read.
mod read {
    use super::super::codec::{Item, Reader};
    use super::super::error::WireError;

    macro_rules! plain {
        ($($form:ident($type:ty);)*) => { $(
            pub(super) fn $form(reader: &mut Reader<'_>) -> Result<$type, WireError> {
                reader.$form()
            }
        )* };
    }

    plain! {
        octet(u8); uint16(u16); uint32(u32); uint64(u64); int16(i16); int32(i32); int64(i64);
        string(super::Text);
    }

    pub(super) fn boolean(reader: &mut Reader<'_>) -> Result<bool, WireError> {
        Ok(reader.octet()? != 0)
    }

    pub(super) fn int8(reader: &mut Reader<'_>) -> Result<i8, WireError> {
        Ok(reader.octet()?.cast_signed())
    }

    pub(super) fn folded(reader: &mut Reader<'_>) -> Result<u32, WireError> {
        Ok(reader.int32()?.cast_unsigned())
    }

    pub(super) fn two(reader: &mut Reader<'_>) -> Result<(i64, i64), WireError> {
        Ok((reader.int64()?, reader.int64()?))
    }

    pub(super) fn object(reader: &mut Reader<'_>) -> Result<Vec<u8>, WireError> {
        reader.object().map(<[u8]>::to_vec)
    }

    pub(super) fn item<T: Item>(reader: &mut Reader<'_>) -> Result<T, WireError> {
        T::read(reader)
    }

    pub(super) fn boxed<T: Item>(reader: &mut Reader<'_>) -> Result<Box<T>, WireError> {
        T::read(reader).map(Box::new)
    }
}
