"""instructor against the server at argv[1]: models by tools and by JSON schema."""

import sys
from typing import Literal

import instructor
from openai import OpenAI
from pydantic import BaseModel, Field


class Person(BaseModel):
    name: str = Field(max_length=20)
    kind: Literal["child", "adult"]


def main() -> None:
    openai = OpenAI(base_url=f"{sys.argv[1]}/v1", api_key="x", max_retries=0)
    for mode in (instructor.Mode.TOOLS, instructor.Mode.JSON_SCHEMA):
        client = instructor.from_openai(openai, mode=mode)
        person = client.chat.completions.create(
            model="m",
            response_model=Person,
            messages=[{"role": "user", "content": "Anna is 34 years old."}],
            max_tokens=96,
            temperature=0,
            max_retries=0,
        )
        assert isinstance(person, Person), mode


main()
