//! A JSON Schema of scenario files, asked from the reader itself.
//!
//! A deserializer that has no text walks the same structs as the one that reads files: each is
//! asked for what it wants, given the example that it names, and what it wanted is written down.
//! So a key is in the schema when a file may have it, and not otherwise. What must be there is
//! found by leaving each key out once and seeing whether the reader misses it.

use super::file::File;
use serde::de::value::BorrowedStrDeserializer;
use serde::de::{self, Deserialize, DeserializeSeed, Expected, MapAccess, SeqAccess, Visitor};
use serde::de::{Deserializer, IntoDeserializer};
use serde_json::{Map, Value, json};
use sluicegate_core::{Place, Reason, limits};

/// The error of the reader on examples.
type Error = de::value::Error;

/// The JSON Schema (draft 2020-12) of a scenario file.
pub fn schema() -> Value {
    let mut whole = Value::Null;
    ask(&mut whole, None).expect("the reader takes its own examples");
    complete(&mut whole, ROOT, &|path| ask(&mut Value::Null, Some(path)).is_err());
    whole["$schema"] = json!("https://json-schema.org/draft/2020-12/schema");
    whole["title"] = json!("A scenario of sluicegate-sim");
    whole
}

/// The path of the file itself; a key's is this and the keys on the way to it.
const ROOT: &str = "file";

/// Walks the whole reader. Fails when it misses the key that is left out.
fn ask(out: &mut Value, without: Option<&str>) -> Result<(), Error> {
    File::deserialize(Asker { out, path: ROOT.to_owned(), without }).map(drop)
}

/// Adds what a struct cannot be asked: keys that must be there, and the names of limits and cells.
fn complete(schema: &mut Value, path: &str, misses: &dyn Fn(&str) -> bool) {
    if let Some(Value::Object(keys)) = schema.get_mut("properties") {
        let mut required = Vec::new();
        for (key, inner) in keys {
            let path = format!("{path}.{key}");
            if misses(&path) {
                required.push(key.clone());
            }
            match key.as_str() {
                "limits" => *inner = limits_schema(),
                // The keys are cells of the ledger; a tenant's expectations have bounds there.
                "dropped" | "evicted" | "refused" | "shed" if inner["type"] == "object" => {
                    inner["propertyNames"] = json!({ "pattern": cells() });
                }
                _ => complete(inner, &path, misses),
            }
        }
        if !required.is_empty() {
            schema["required"] = json!(required);
        }
    }
    for inner in ["items", "additionalProperties"] {
        if let Some(inner) = schema.get_mut(inner).filter(|inner| inner.is_object()) {
            complete(inner, path, misses);
        }
    }
}

/// Every key of the broker's configuration.
fn limits_schema() -> Value {
    let keys = limits::KEYS.iter().map(|key| {
        let text = format!("{} Unit: {}.", key.help, key.unit);
        let range = json!({ "type": "integer", "minimum": key.min, "maximum": key.max });
        let written = json!({ "type": "string", "pattern": "^[0-9]" });
        let value = json!({
            "description": text,
            "default": key.default,
            "anyOf": [range, written],
        });
        (key.name.to_owned(), value)
    });
    let keys: Map<String, Value> = keys.collect();
    json!({ "type": "object", "properties": keys, "additionalProperties": false })
}

/// `total`, a place, or a place and a reason.
fn cells() -> String {
    let places = Place::ALL.map(Place::name).join("|");
    let reasons = Reason::ALL.map(Reason::name).join("|");
    format!("^(total|({places})(/({reasons}))?)$")
}

/// A deserializer that writes down what it is asked for.
struct Asker<'a> {
    out: &'a mut Value,
    path: String,
    /// The path of a key that is left out.
    without: Option<&'a str>,
}

impl Asker<'_> {
    fn number<'de, V: Visitor<'de>>(self, visitor: V, most: u64) -> Result<V::Value, Error> {
        *self.out = json!({ "type": "integer", "minimum": 0, "maximum": most });
        visitor.visit_u64(1)
    }
}

/// The first example in "a size such as 512, …".
fn example(like: &str) -> &str {
    let words = like.split_once("such as ").map_or("", |parts| parts.1);
    let end = words.find([' ', ',', ';']).unwrap_or(words.len());
    words[..end].trim_matches('"')
}

macro_rules! numbers {
    ($($name:ident $most:expr;)*) => {
        $(fn $name<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
            self.number(visitor, $most)
        })*
    };
}

impl<'de> Deserializer<'de> for Asker<'_> {
    type Error = Error;

    /// An amount: a number, or a text in the form that the visitor describes.
    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        let like = format!("{}", &visitor as &dyn Expected);
        *self.out = json!({ "type": ["number", "string"], "description": like });
        visitor.visit_str(example(&like))
    }

    fn deserialize_bool<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        *self.out = json!({ "type": "boolean" });
        visitor.visit_bool(false)
    }

    numbers! {
        deserialize_u8 u8::MAX.into();
        deserialize_u16 u16::MAX.into();
        deserialize_u32 u32::MAX.into();
        deserialize_u64 i64::MAX.unsigned_abs();
    }

    fn deserialize_str<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        *self.out = json!({ "type": "string" });
        visitor.visit_str("a")
    }

    fn deserialize_string<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        self.deserialize_str(visitor)
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_some(self)
    }

    fn deserialize_seq<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        let mut items = Value::Null;
        let inner = Asker { out: &mut items, path: self.path, without: self.without };
        let value = visitor.visit_seq(Once(Some(inner)))?;
        *self.out = json!({ "type": "array", "items": items });
        Ok(value)
    }

    /// A table whose keys are names.
    fn deserialize_map<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        let mut values = Value::Null;
        let inner = Asker { out: &mut values, path: self.path, without: self.without };
        let value = visitor.visit_map(Named { inner: Some(inner), is_named: false })?;
        *self.out = json!({ "type": "object", "additionalProperties": values });
        Ok(value)
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        // A value with its place in the text is asked for as a struct that no file can name.
        let is_place = fields.iter().all(|field| field.starts_with('$'));
        if !is_place {
            *self.out =
                json!({ "type": "object", "properties": {}, "additionalProperties": false });
        }
        visitor.visit_map(Fields { asker: self, left: fields.iter(), key: "", is_place })
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _: &'static str,
        variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        *self.out = json!({ "type": "string", "enum": variants });
        visitor.visit_enum(variants[0].into_deserializer())
    }

    fn deserialize_identifier<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        self.deserialize_str(visitor)
    }

    serde::forward_to_deserialize_any! {
        i8 i16 i32 i64 i128 u128 f32 f64 char bytes byte_buf unit unit_struct newtype_struct
        tuple tuple_struct ignored_any
    }
}

/// One element.
struct Once<'a>(Option<Asker<'a>>);

impl<'de> SeqAccess<'de> for Once<'_> {
    type Error = Error;

    fn next_element_seed<T: DeserializeSeed<'de>>(
        &mut self,
        seed: T,
    ) -> Result<Option<T::Value>, Error> {
        self.0.take().map(|asker| seed.deserialize(asker)).transpose()
    }
}

/// One value, with a name.
struct Named<'a> {
    inner: Option<Asker<'a>>,
    is_named: bool,
}

impl<'de> MapAccess<'de> for Named<'_> {
    type Error = Error;

    fn next_key_seed<K: DeserializeSeed<'de>>(
        &mut self,
        seed: K,
    ) -> Result<Option<K::Value>, Error> {
        if std::mem::replace(&mut self.is_named, true) {
            return Ok(None);
        }
        let name = Asker { out: &mut Value::Null, path: String::new(), without: None };
        seed.deserialize(name).map(Some)
    }

    fn next_value_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<T::Value, Error> {
        seed.deserialize(self.inner.take().expect("one value for one key"))
    }
}

/// The fields of a struct, one after the other.
struct Fields<'a> {
    asker: Asker<'a>,
    left: std::slice::Iter<'static, &'static str>,
    key: &'static str,
    /// It is a place in the text, and only its last field, the value, is written down.
    is_place: bool,
}

impl Fields<'_> {
    fn path(&self) -> String {
        if self.is_place {
            return self.asker.path.clone();
        }
        format!("{}.{}", self.asker.path, self.key)
    }
}

impl<'de> MapAccess<'de> for Fields<'_> {
    type Error = Error;

    fn next_key_seed<K: DeserializeSeed<'de>>(
        &mut self,
        seed: K,
    ) -> Result<Option<K::Value>, Error> {
        while let Some(key) = self.left.next() {
            self.key = key;
            if self.is_place || self.asker.without != Some(&self.path()) {
                return seed.deserialize(BorrowedStrDeserializer::new(key)).map(Some);
            }
        }
        Ok(None)
    }

    fn next_value_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<T::Value, Error> {
        let (path, without) = (self.path(), self.asker.without);
        let mut inner = Value::Null;
        let value = seed.deserialize(Asker { out: &mut inner, path, without })?;
        if self.is_place {
            *self.asker.out = inner;
        } else {
            self.asker.out["properties"][self.key] = inner;
        }
        Ok(value)
    }
}

#[cfg(test)]
mod tests;
