"""Fidelity of Postgres types: every line of the table in docs/postgres-types.md."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Fidelity:
    """A line of the table of types."""

    postgres: str
    becomes: str
    remark: str = ""


FIDELITY: tuple[Fidelity, ...] = (
    Fidelity("smallint", "int"),
    Fidelity("integer", "int", "serial too"),
    Fidelity("bigint", "long", "bigserial too"),
    Fidelity("numeric(p,s)", "decimal(p,s)", "p ≤ 38; NaN is an error that names the column, or null with `nan`"),
    Fidelity("numeric(p,s), s < 0", "decimal(p-s,0)", "numeric(3,-2) → decimal(5,0)"),
    Fidelity("numeric(p,s), s > p", "decimal(s,s)", "numeric(2,4) → decimal(4,4)"),
    Fidelity("numeric, or p > 38", "string", "every digit; `NaN`, `Infinity`, `-Infinity`"),
    Fidelity("real", "float", "NaN and ±Infinity too"),
    Fidelity("double precision", "double", "NaN and ±Infinity too"),
    Fidelity("money", "string", "the number: `-1234.50`, without currency and grouping"),
    Fidelity("boolean", "bool"),
    Fidelity("text", "string", "empty is empty, null is null"),
    Fidelity("varchar(n)", "string"),
    Fidelity("char(n)", "string", "with the blanks that pad it to n"),
    Fidelity('"char"', "string"),
    Fidelity("name", "string"),
    Fidelity("citext", "string", "as written"),
    Fidelity("bytea", "binary", "zero bytes included"),
    Fidelity("date", "date", "any year; ±infinity is an error, or as `infinity` says"),
    Fidelity(
        "timestamp",
        "timestamp",
        "taken as UTC; ±infinity and years after 294246 are an error, or as `infinity` says",
    ),
    Fidelity("timestamptz", "timestamp", "the same instant in UTC; ±infinity as above"),
    Fidelity("time", "string", "`24:00:00` exists"),
    Fidelity("timetz", "string", "with its offset: `12:00:00+02`"),
    Fidelity("interval", "string", "ISO 8601: `P1M3DT4H5M6.789S`"),
    Fidelity("uuid", "string"),
    Fidelity("json", "json", "the text as stored, blanks and repeated keys included"),
    Fidelity("jsonb", "json", "the text that Postgres prints; every digit of a number"),
    Fidelity("xml", "string"),
    Fidelity("inet", "string"),
    Fidelity("cidr", "string"),
    Fidelity("macaddr", "string"),
    Fidelity("macaddr8", "string"),
    Fidelity("bit(n)", "string", "`0` and `1`"),
    Fidelity("bit varying(n)", "string", "`0` and `1`"),
    Fidelity("range", "string", "int4range, numrange, tstzrange … and your own: `[1,4)`"),
    Fidelity("multirange", "string", "`{[1,3),[5,7)}`"),
    Fidelity("enum", "string", "its label"),
    Fidelity("domain", "what it is made of", "numeric(p,s) keeps p and s"),
    Fidelity("array", "list<T>", "T as in this table, null elements too; bounds other than 1 are not kept"),
    Fidelity("array of several dimensions", "json", "declared `int[][]`; found in an `int[]`: error, or null"),
    Fidelity("array of composites", "json", "and of hstore, and of arrays behind a domain"),
    Fidelity("composite", "json", "an object by field name"),
    Fidelity("hstore", "json", "an object of texts and nulls"),
    Fidelity("ltree", "string"),
    Fidelity("tsvector", "string"),
    Fidelity("tsquery", "string"),
    Fidelity("point, line, lseg, box, path, polygon, circle", "string", "as Postgres prints it: `(1,2)`"),
    Fidelity("oid", "long"),
    Fidelity("xid, xid8, cid, tid", "string"),
    Fidelity("pg_lsn", "string"),
    Fidelity("regclass, regtype …", "string", "the name"),
    Fidelity("jsonpath", "string"),
    Fidelity("int2vector, oidvector", "string", "`1 2 3`"),
    Fidelity("any other type", "string", "as Postgres prints it"),
)


def fidelity_table() -> str:
    """The table as Markdown."""
    lines = ["| Postgres | frazil | remark |", "|---|---|---|"]
    lines += [f"| {row.postgres} | `{row.becomes}` | {row.remark} |".replace("|  |", "| |") for row in FIDELITY]
    return "\n".join(lines) + "\n"
