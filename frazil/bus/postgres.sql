-- Everything the Postgres bus keeps. Run at each connect, under an advisory lock; each statement may run again.
create schema if not exists frazil_bus;

create table if not exists frazil_bus.stream (
    name text primary key,
    identity text not null unique,
    first bigint not null,
    head bigint not null,
    bytes bigint not null default 0
);

create table if not exists frazil_bus.message (
    identity text not null references frazil_bus.stream (identity) on delete cascade,
    sequence bigint not null,
    headers text not null,
    body bytea not null,
    primary key (identity, sequence)
);
-- Bodies are compressed already.
alter table frazil_bus.message alter column body set storage external;

create table if not exists frazil_bus.published (
    identity text not null references frazil_bus.stream (identity) on delete cascade,
    message_id text not null,
    last bigint not null,
    at timestamptz not null default clock_timestamp(),
    primary key (identity, message_id)
);
create index if not exists published_at on frazil_bus.published (identity, at);
